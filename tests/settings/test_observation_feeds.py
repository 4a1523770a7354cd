"""The setting `observations`."""

import pytest

from vramline.errors import MistakesError
from vramline.model.observation import ObservationSource
from vramline.settings import load, read_feeds


def test_sources_are_read_in_order() -> None:
    settings = load({"observations": "prometheus=http://p:9090, dcgm=http://{node}:9400/metrics"}, {}, {})

    assert [(feed.source, feed.url) for feed in read_feeds(settings.observations)] == [
        (ObservationSource.PROMETHEUS, "http://p:9090"),
        (ObservationSource.DCGM, "http://{node}:9400/metrics"),
    ]


def test_without_the_setting_nobody_is_asked() -> None:
    assert read_feeds(load(None, {}, {}).observations) == ()


@pytest.mark.parametrize(
    "text",
    [
        "http://p:9090",
        "nagios=http://p",
        "dcgm=file:///etc/passwd",
        "dcgm=p:9400",
        "prometheus=http://{node}:9090",
        "dcgm=http://p/ x",
        7,
    ],
)
def test_what_cannot_be_asked_is_a_mistake(text: object) -> None:
    with pytest.raises(MistakesError, match="observations"):
        load({"observations": text}, {}, {})
