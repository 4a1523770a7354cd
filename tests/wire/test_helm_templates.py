"""The small part of Helm's template language; that Helm agrees is tested with Helm itself, on the chart."""

from typing import Any

import pytest

from vramline.errors import InvariantError
from vramline.wire.helm_templates import render_template

VALUES: dict[str, Any] = {
    "image": "vramline:1",
    "replicas": 2,
    "on": True,
    "off": False,
    "empty": [],
    "ports": [443, 6443],
    "settings": {"policy": "spread", "margin": 100},
}
FILES = {"policies/b.yaml": "b: here", "policies/a.yaml": "a: here", "values.yaml": "no"}


def render(text: str) -> str:
    release = {"Release": {"Namespace": "somewhere"}, "Chart": {"AppVersion": "1.2.3"}}
    return render_template(text, values=VALUES, release=release, files=FILES)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        pytest.param("plain: {a: b}\n", "plain: {a: b}\n", id="text without actions stays"),
        pytest.param("{{ .Values.image }}", "vramline:1", id="a value"),
        pytest.param("{{.Values.image}}", "vramline:1", id="white space inside an action is free"),
        pytest.param("{{ $.Release.Namespace }}", "somewhere", id="a path from the root by its dollar sign"),
        pytest.param("{{ .Chart.AppVersion | quote }}", '"1.2.3"', id="quoted"),
        pytest.param("{{ .Values.replicas | toJson }}", "2", id="a number as JSON"),
        pytest.param(
            "{{ .Values.settings | toJson }}", '{"margin":100,"policy":"spread"}', id="keys are in order"
        ),
        pytest.param('{{ "a-b-a" | replace "a" .Values.image }}', "vramline:1-b-vramline:1", id="replace"),
        pytest.param(
            '{{ "x" | sha256sum }}',
            "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
            id="a digest",
        ),
        pytest.param("a  {{- .Values.image }}", "avramline:1", id="a dash takes the space before along"),
        pytest.param("{{ .Values.image -}}\n b", "vramline:1b", id="a dash takes the space after along"),
        pytest.param("{{- /* why }} */}}x", "x", id="comments vanish"),
        pytest.param("{{ if .Values.on }}yes{{ end }}", "yes", id="if something"),
        pytest.param("{{ if .Values.off }}yes{{ end }}", "", id="if false"),
        pytest.param("{{ if .Values.empty }}yes{{ end }}", "", id="if nothing"),
        pytest.param(
            "{{ if .Values.on }}{{ if .Values.off }}a{{ end }}b{{ end }}c", "bc", id="blocks inside blocks"
        ),
        pytest.param(
            "{{ range $name, $value := .Values.settings }}{{ $name }}={{ $value | toJson }} {{ end }}",
            'margin=100 policy="spread" ',
            id="over a mapping, in order of its keys",
        ),
        pytest.param(
            "{{ range $index, $port := .Values.ports }}{{ $port | toJson }};{{ end }}",
            "443;6443;",
            id="over a list",
        ),
        pytest.param(
            '{{ range $path, $text := .Files.Glob "policies/*.yaml" }}{{ $text | toString }};{{ end }}',
            "a: here;b: here;",
            id="over files",
        ),
        pytest.param(
            "{{ $a := .Values.image }}{{ if .Values.on }}{{ $a }}{{ end }}", "vramline:1", id="a name for it"
        ),
    ],
)
def test_an_action_becomes(text: str, rendered: str) -> None:
    assert render(text) == rendered


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{{ .Values.missing }}", id="a value that is not there"),
        pytest.param("{{ .Values.image.tag }}", id="below a text"),
        pytest.param("{{ $nobody }}", id="an unknown variable"),
        pytest.param("{{ .Values.replicas }}", id="a number as text, which Helm may write as 1e+06"),
        pytest.param("{{ .Values.image | upper }}", id="a function beyond the small part"),
        pytest.param("{{ .Values.image | quote 1 }}", id="an argument too many"),
        pytest.param('{{ printf "%s" .Values.image }}', id="a call beyond the small part"),
        pytest.param("{{ if .Values.on }}", id="no end"),
        pytest.param("{{ end }}", id="an end alone"),
        pytest.param(
            "{{ if .Values.on }}{{ $a := .Values.image }}{{ end }}{{ $a }}", id="a name after its block"
        ),
        pytest.param("{{ range .Values.ports }}{{ end }}", id="range without variables"),
    ],
)
def test_what_is_not_of_the_small_part_is_an_error(text: str) -> None:
    with pytest.raises(InvariantError, match="template"):
        render(text)
