"""What is installed in a cluster: the chart's files and a few choices in, the text of every object out."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vramline.errors import MistakesError, RequestError
from vramline.wire.helm_templates import render_template

__all__ = ["Choices", "merge_values", "render_manifests"]

_SEPARATOR = re.compile(r"^---[ \t]*$", re.MULTILINE)
_CONTENT = re.compile(r"^[^#\s]", re.MULTILINE)
_KIND = re.compile(r"^kind: *(\w+)", re.MULTILINE)
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._/@:-]*", re.ASCII)
_TAG = re.compile(r"v[0-9]+\.[0-9]+\.[0-9]+(?:[._+-][a-zA-Z0-9._+-]*)?", re.ASCII)

_FIRST = ("Namespace", "CustomResourceDefinition", "PriorityClass", "ServiceAccount")
"""Kinds that others need when they are created; the rest follows in the order of the files."""

_LAST = ("MutatingWebhookConfiguration",)
"""Comes when there is somebody to answer."""


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator may choose without writing a values file; None leaves the chart's default."""

    namespace: str = "vramline-system"
    with_namespace: bool = True
    with_agent: bool | None = None
    with_plugin: bool | None = None
    """With the device plugin, and then with the agent, which it is part of."""
    with_dashboard: bool | None = None
    with_hami_lock: bool | None = None
    image: str | None = None
    replicas: int | None = None
    kube_scheduler_image: str | None = None
    kube_scheduler_version: str | None = None
    scheduler_name: str | None = None
    excluded_namespaces: tuple[str, ...] = ()
    """Beside the chart's own list."""
    settings: dict[str, str] = {}
    """By the setting's name; checked by whoever read them."""


def merge_values(defaults: Mapping[str, Any], choices: Choices) -> dict[str, Any]:
    """Return the chart's values with the choices in them. All mistakes are raised at once."""
    mistakes = tuple(_mistakes(choices))
    if mistakes:
        raise MistakesError(subject="command line", mistakes=mistakes)
    chosen: dict[tuple[str, ...], Any] = {
        ("createNamespace",): choices.with_namespace,
        ("image",): choices.image,
        ("schedulerName",): choices.scheduler_name,
        ("scheduler", "replicas"): choices.replicas,
        ("kubeScheduler", "repository"): choices.kube_scheduler_image,
        ("kubeScheduler", "version"): choices.kube_scheduler_version,
        ("agent", "enabled"): choices.with_plugin or choices.with_agent,
        ("devicePlugin", "enabled"): choices.with_plugin,
        ("dashboard", "enabled"): choices.with_dashboard,
        ("hami", "nodeLock"): choices.with_hami_lock,
        ("excludedNamespaces",): _united(defaults["excludedNamespaces"], choices.excluded_namespaces),
        ("settings",): {**defaults["settings"], **choices.settings},
    }
    values = dict(defaults)
    for path, value in chosen.items():
        if value is not None:
            values = _with(values, path, value)
    return values


def render_manifests(
    files: Mapping[str, str], values: Mapping[str, Any], *, namespace: str, version: str
) -> list[str]:
    """Return the YAML text of every object, in an order in which it can be applied.

    `files` holds the chart by path: `crds/` is taken as it is, every `.yaml` in `templates/` is rendered.
    """
    release = {"Release": {"Namespace": namespace}, "Chart": {"AppVersion": version}}
    texts = [text for path, text in sorted(files.items()) if path.startswith("crds/")]
    for path, text in sorted(files.items()):
        if path.startswith("templates/") and path.endswith(".yaml"):
            texts.append(render_template(text, values=values, release=release, files=files))
    documents = [document for text in texts for document in _split(text)]
    return sorted(documents, key=_place)


def _split(text: str) -> Iterator[str]:
    for document in _SEPARATOR.split(text):
        if _CONTENT.search(document):
            yield f"{document.strip()}\n"


def _place(document: str) -> int:
    found = _KIND.search(document)
    kind = "" if found is None else found[1]
    if kind in _FIRST:
        return _FIRST.index(kind)
    return len(_FIRST) + (kind in _LAST)


def _united(first: list[str], second: tuple[str, ...]) -> list[str]:
    return [*first, *(name for name in dict.fromkeys(second) if name not in first)]


def _with(values: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    name, *rest = path
    return {**values, name: _with(values[name], tuple(rest), value) if rest else value}


def _mistakes(choices: Choices) -> Iterator[RequestError]:
    names = [
        ("--namespace", choices.namespace),
        ("--scheduler-name", choices.scheduler_name),
        *(("--exclude-namespace", name) for name in choices.excluded_namespaces),
    ]
    for option, name in names:
        if name is not None and not _NAME.fullmatch(name):
            accepted = "at most 63 lower-case letters, digits and dashes, such as vramline-system"
            yield _wrong(option, name, "is no name that Kubernetes takes", accepted)
    if choices.with_plugin and choices.with_agent is False:
        yield _wrong(
            "--with-plugin", "--without-agent", "the plugin is part of the agent", "--with-agent, or neither"
        )
    if choices.scheduler_name == "default-scheduler":
        accepted = "any other name; pods name it in spec.schedulerName"
        yield _wrong("--scheduler-name", choices.scheduler_name, "is the cluster's own scheduler", accepted)
    for option, image in (
        ("--image", choices.image),
        ("--kube-scheduler-image", choices.kube_scheduler_image),
    ):
        if image is not None and not _IMAGE.fullmatch(image):
            yield _wrong(
                option, image, "is no image reference", "such as registry.example/team/vramline:0.1.0"
            )
    version = choices.kube_scheduler_version
    if version is not None and not _TAG.fullmatch(version):
        yield _wrong("--kube-scheduler-version", version, "is no version", "the cluster's, such as v1.35.8")


def _wrong(option: str, value: str, problem: str, accepted: str) -> RequestError:
    return RequestError(subject="command line", field=option, value=value, problem=problem, accepted=accepted)
