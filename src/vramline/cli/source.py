"""Where client commands get their data: a running scheduler or demo, or the objects of a cluster itself."""

import asyncio
import os
from pathlib import Path
from typing import Annotated, Protocol, Self, TypeVar

import msgspec
import typer

from vramline.cli.client import VARIABLE, Client
from vramline.cli.settings_file import load_settings
from vramline.errors import RequestError, VramlineError
from vramline.kube.target import Target, find_target

__all__ = ["ContextOption", "KubeconfigOption", "Source", "is_cluster_configured", "open_source"]

T = TypeVar("T")

KubeconfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Read from this cluster's API server.", show_default=False),
]
ContextOption = Annotated[str, typer.Option(help="Context of the kubeconfig.", show_default=False)]


class Source(Protocol):
    """Something that answers as the JSON API does."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def get(self, path: str, kind: type[T]) -> T:
        """Return what is at a path of the API."""
        ...

    def origin(self) -> str:
        """Say in one line where the last answer came from; empty: from the address that was asked."""
        ...


def open_source(server: str | None, kubeconfig: Path | None, context: str) -> Source:
    """Return what to ask: --server, its variable, a kubeconfig or the pod's cluster, the default address."""
    if kubeconfig is None and not context and (server or os.environ.get(VARIABLE)):
        return Client(server)
    if server:
        raise RequestError(
            subject="command line",
            field="--server",
            value=server,
            problem="is given together with a kubeconfig",
            accepted="one of them: a running scheduler, or a cluster",
        )
    target = _find_target(kubeconfig, context)
    return Client(None) if target is None else ClusterSource(target)


def is_cluster_configured() -> bool:
    """Whether client commands would read a cluster unless they are told an address."""
    try:
        return _find_target(None, "") is not None
    except RequestError:
        return True


def _find_target(kubeconfig: Path | None, context: str) -> Target | None:
    """Return the cluster that is configured; None: none is, and nobody asked for one."""
    named = kubeconfig is not None or bool(context) or bool(os.environ.get("KUBECONFIG"))
    try:
        return find_target(os.environ, kubeconfig=kubeconfig, context=context)
    except RequestError as error:
        if named or error.subject != "Kubernetes":
            raise
        return None


class ClusterSource:
    """The API's answers, made here from what the API server holds. Every answer is read anew."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._settings = load_settings(None, {})
        self._origin = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def get(self, path: str, kind: type[T]) -> T:
        """Read the cluster, and answer as a scheduler over it would."""
        code, body = asyncio.run(self._answer(path))
        if code != 200:
            raise VramlineError(msgspec.json.decode(body)["error"])
        return msgspec.json.decode(body, type=kind)

    def origin(self) -> str:
        """Name the API server, and how old its reports are."""
        return self._origin

    async def _answer(self, path: str) -> tuple[int, bytes]:
        import httpx  # noqa: PLC0415 — `--help` need not pay for it

        from vramline.explain.history import History  # noqa: PLC0415 — as above
        from vramline.scheduler.app import build_app  # noqa: PLC0415 — as above
        from vramline.serve.reading import open_client, read_cluster  # noqa: PLC0415 — as above

        async with open_client(self._target) as client:
            reading = await read_cluster(client, self._settings)
        ages = reading.ages()
        reports = f"reports {ages[0]:,.0f} to {ages[-1]:,.0f} s old" if ages else "no reports"
        self._origin = f"read just now from {self._target.cluster.server} ({self._target.origin}); {reports}"
        transport = httpx.ASGITransport(app=build_app(reading.cluster, History()))
        async with httpx.AsyncClient(transport=transport, base_url="http://cluster") as client:
            answer = await client.get(path)
        return answer.status_code, answer.content
