"""Precedence, origins, and all mistakes at once."""

from collections.abc import Mapping

import pytest

from vramline.errors import MistakesError
from vramline.model.ask import RealtimeMode
from vramline.settings import SETTINGS, Origin, Settings, Source, load

STRICT, WARNING, DISABLED = RealtimeMode.STRICT, RealtimeMode.WARNING, RealtimeMode.DISABLED


def mistakes_of(
    file: object = None, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> list[str]:
    with pytest.raises(MistakesError) as caught:
        load(file, environ or {}, flags or {}, file_name="vramline.yaml")
    return [str(mistake) for mistake in caught.value.mistakes]


def test_nothing_said_means_defaults() -> None:
    settings = load(None, {}, {})

    assert settings == Settings(origins={"realtimeMode": Origin()})


def test_defaults_are_those_of_the_contract() -> None:
    settings = Settings()

    assert (settings.realtime_mode, settings.margin, settings.release_grace_s) == (STRICT, 100, 60.0)
    assert (settings.observation_max_age_s, settings.observation_max_age_stream_s) == (90.0, 5.0)
    assert settings.look_within_s == 0.05
    assert (settings.stale_observation, settings.unsized_ask, settings.policy) == (
        "books",
        "share",
        "vramline",
    )
    assert (settings.node_pool_label_key, settings.node_pool_label_value) == ("", "")
    assert str(settings.listen) == "127.0.0.1:8780"


@pytest.mark.parametrize(
    ("file", "environ", "flags", "margin", "source"),
    [
        pytest.param(None, {}, {}, 100, Source.DEFAULT, id="default"),
        pytest.param({"margin": "200Mi"}, {}, {}, 200, Source.FILE, id="file over default"),
        pytest.param(
            {"margin": 200},
            {"VRAMLINE_MARGIN": "300"},
            {},
            300,
            Source.ENVIRONMENT,
            id="environment over file",
        ),
        pytest.param(
            {"margin": 200}, {"VRAMLINE_MARGIN": "300"}, {"margin": "0"}, 0, Source.FLAG, id="flag over all"
        ),
        pytest.param(
            {"margin": 200}, {}, {"margin": None}, 200, Source.FILE, id="a flag not given says nothing"
        ),
        pytest.param(
            {"margin": 200}, {"VRAMLINE_MARGIN": " "}, {}, 200, Source.FILE, id="nor an empty variable"
        ),
    ],
)
def test_precedence(
    file: object, environ: dict[str, str], flags: dict[str, object], margin: int, source: Source
) -> None:
    settings = load(file, environ, flags)

    assert (settings.margin, settings.origin("margin").source) == (margin, source)


def test_an_origin_names_the_place_and_what_it_overruled() -> None:
    settings = load({"margin": 200}, {"VRAMLINE_MARGIN": "1Gi"}, {"margin": "0"})

    assert settings.origin("margin") == Origin(
        source=Source.FLAG,
        where="--margin = 0",
        overrides=("margin = 200", "VRAMLINE_MARGIN = 1Gi"),
    )


@pytest.mark.parametrize(
    ("file", "environ", "flags", "mode", "where"),
    [
        pytest.param(
            {}, {"HAMI_REALTIME_CHECK_MODE": "warning"}, {}, WARNING, "HAMI_REALTIME_CHECK_MODE = warning",
            id="the seed's variable sets the mode",
        ),
        pytest.param(
            {}, {"HAMI_REALTIME_CHECK_MODE": "warning", "VRAMLINE_REALTIME_MODE": "disabled"}, {}, DISABLED,
            "VRAMLINE_REALTIME_MODE = disabled", id="our own variable wins over the seed's",
        ),
        pytest.param(
            {}, {"HAMI_ENABLE_REALTIME_CHECK": "false", "VRAMLINE_REALTIME_MODE": "warning"}, {}, WARNING,
            "VRAMLINE_REALTIME_MODE = warning", id="our own mode wins over the seed's switch",
        ),
        pytest.param(
            {}, {"HAMI_ENABLE_REALTIME_CHECK": "false", "HAMI_REALTIME_CHECK_MODE": "strict"}, {}, DISABLED,
            "HAMI_ENABLE_REALTIME_CHECK = false", id="off is disabled, whatever mode is named beside it",
        ),
        pytest.param(
            {}, {"HAMI_ENABLE_REALTIME_CHECK": "true", "HAMI_REALTIME_CHECK_MODE": "warning"}, {}, WARNING,
            "HAMI_REALTIME_CHECK_MODE = warning", id="on keeps the mode in force",
        ),
        pytest.param(
            {"realtimeMode": "disabled"}, {}, {"enableRealtimeCheck": "true"}, STRICT,
            "--enable-realtime-check = true", id="on is strict where the mode in force is disabled",
        ),
        pytest.param(
            {"realtimeMode": "warning"}, {}, {"enableRealtimeCheck": True}, WARNING, "realtimeMode = warning",
            id="a flag that changes nothing is not the origin",
        ),
        pytest.param(
            {"enableRealtimeCheck": False}, {}, {"realtimeMode": "warning"}, WARNING, "--realtime = warning",
            id="a mode on the command line wins over a switch in the file",
        ),
        pytest.param({"enableRealtimeCheck": True}, {}, {}, STRICT, "", id="on keeps the default"),
    ],
)  # fmt: skip
def test_mode_and_switch(
    file: object, environ: dict[str, str], flags: dict[str, object], mode: RealtimeMode, where: str
) -> None:
    settings = load(file, environ, flags)

    assert (settings.realtime_mode, settings.origin("realtimeMode").where) == (mode, where)


def test_every_mistake_is_reported_with_its_path_and_what_is_accepted() -> None:
    found = mistakes_of(
        {"margin": "8 GB", "policy": "luck", "realtimeMod": "strict"},
        {"VRAMLINE_RELEASE_GRACE": "soon", "HAMI_ENABLE_REALTIME_CHECK": "maybe"},
        {"verbosity": "11"},
    )

    assert found == [
        (
            "vramline.yaml: margin = '8 GB': is not an amount of memory;"
            " accepted: MiB as a whole number, or 100Mi, 1Gi; 0 for none"
        ),
        (
            "vramline.yaml: policy = 'luck': is none of the accepted words;"
            " accepted: bestfit, binpack, spread, mostidle,"
            " vramline, fgd, dotprod, clustering, packing, random"
        ),
        "vramline.yaml: realtimeMod: is no setting; did you mean realtimeMode?",
        "environment: HAMI_ENABLE_REALTIME_CHECK = 'maybe': is neither true nor false; accepted: true, false",
        (
            "environment: VRAMLINE_RELEASE_GRACE = 'soon': is not a duration;"
            " accepted: a duration up to a day: 90s, 2m, 1h, 500ms, or a number of seconds"
        ),
        "command line: --v = '11': is no verbosity; accepted: 0 to 10, where 4 traces decisions",
    ]


@pytest.mark.parametrize(
    ("environ", "mistake"),
    [
        pytest.param(
            {"VRAMLINE_MARGN": "1"},
            "environment: VRAMLINE_MARGN: is no setting; did you mean VRAMLINE_MARGIN?",
            id="a typing error is named",
        ),
        pytest.param(
            {"VRAMLINE_TOKEN": "s3cret"}, "environment: VRAMLINE_TOKEN: is no setting", id="anything else"
        ),
    ],
)
def test_an_unknown_variable_is_a_mistake(environ: dict[str, str], mistake: str) -> None:
    (found,) = mistakes_of(None, environ)

    assert found.startswith(mistake)
    assert "s3cret" not in found


@pytest.mark.parametrize(
    "variable",
    [
        "VRAMLINE_SERVER",
        "VRAMLINE_DATA",
        "VRAMLINE_SERVICE_HOST",
        "VRAMLINE_SERVICE_PORT_HTTPS",
        "VRAMLINE_PORT",
        "VRAMLINE_SCHEDULER_PORT_8780_TCP_ADDR",
        "HAMI_SOMETHING_ELSE",
        "PATH",
    ],
)
def test_variables_of_others_are_left_alone(variable: str) -> None:
    assert load(None, {variable: "tcp://10.0.0.1:80"}, {}).origins == {"realtimeMode": Origin()}


@pytest.mark.parametrize(
    ("file", "mistake"),
    [
        pytest.param(["margin"], "vramline.yaml: is a list, not a mapping", id="a list"),
        pytest.param("margin", "vramline.yaml: is a str, not a mapping", id="a word"),
        pytest.param({1: 2}, "vramline.yaml: 1: is no setting", id="a key that is no text"),
        pytest.param({"margin": None}, "vramline.yaml: margin: has no value", id="a key without value"),
        pytest.param(
            {"margin": [1]}, "vramline.yaml: margin = [1]: is not a single value", id="a list as value"
        ),
        pytest.param(
            {"marginMiB": 100}, "vramline.yaml: marginMiB: is no setting; did you mean margin?", id="unit"
        ),
    ],
)
def test_a_file_of_the_wrong_shape_is_a_mistake(file: object, mistake: str) -> None:
    (found,) = mistakes_of(file)

    assert found.startswith(mistake)


def test_half_a_node_pool_is_a_mistake() -> None:
    assert mistakes_of({"nodePoolLabelKey": "example.com/pool"}) == [
        (
            "settings: nodePoolLabelKey and nodePoolLabelValue = 'example.com/pool=':"
            " one is set without the other; accepted: both, or none for all nodes"
        )
    ]


def test_a_node_pool_may_come_from_two_sources() -> None:
    settings = load({"nodePoolLabelKey": "example.com/pool"}, {"VRAMLINE_NODE_POOL_LABEL_VALUE": "a100"}, {})

    assert (settings.node_pool_label_key, settings.node_pool_label_value) == ("example.com/pool", "a100")


def test_every_setting_is_a_field_and_every_field_a_setting() -> None:
    fields = set(Settings.__struct_fields__) - {"origins"}

    assert {setting.field for setting in SETTINGS} == fields


def test_every_default_is_accepted_where_a_user_would_write_it() -> None:
    defaults = Settings()
    said = {
        setting.name: "" if (value := getattr(defaults, setting.field)) is None else str(value)
        for setting in SETTINGS
        if setting.name != "enableRealtimeCheck"
    }

    assert load(said, {}, {}).margin == defaults.margin
