"""`vramline reserve`: the program in a reservation pod."""

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from vramline.cli.apps import examples, new_app
from vramline.cli.output import OutputFormat, OutputOption, print_data
from vramline.cli.settings_file import ConfigOption, load_settings
from vramline.errors import RequestError
from vramline.kube.objects import ObjectKey
from vramline.kube.target import find_target
from vramline.probes.only_card import OnlyCard
from vramline.probes.options import ProbeOptions
from vramline.reserve.idle import wait_for_the_end
from vramline.reserve.lines import speaker
from vramline.reserve.program import find_card, tell_own_pod
from vramline.settings import LogFormat, Settings

__all__ = ["app"]

app = new_app()

OnceOption = Annotated[
    bool, typer.Option("--once", help="Find the card, print it, and end. Writes nothing, needs no cluster.")
]
PodOption = Annotated[
    str,
    typer.Option(
        metavar="NAMESPACE/NAME",
        help="The pod this runs in.  [default: POD_NAMESPACE/POD_NAME]",
        show_default=False,
    ),
]
LibraryOption = Annotated[
    str | None, typer.Option(metavar="PATH", help="NVML library or its folder.  [default: it is found]")
]
KubeconfigOption = Annotated[
    Path | None, typer.Option(help="Cluster of the pod; inside a pod its own.", show_default=False)
]
ContextOption = Annotated[str, typer.Option(help="Context of the kubeconfig.", show_default=False)]

_ASK_WITHIN_S = 15.0
"""A driver that nobody used for a while first wakes the card, which takes seconds."""


@app.command(
    epilog=examples(
        "vramline reserve",
        "vramline reserve --once -o json",
        "vramline reserve --once --library /usr/lib/aarch64-linux-gnu/nvidia",
    )
)
def reserve(  # noqa: PLR0913 — one parameter an option
    *,
    once: OnceOption = False,
    output: OutputOption = OutputFormat.TABLE,
    pod: PodOption = "",
    library: LibraryOption = None,
    config: ConfigOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = "",
) -> None:
    """Hold the one GPU that kubelet gave to this pod: find its UUID, write it onto the pod, and wait."""
    settings = load_settings(config, {"nvmlLibrary": library})
    say = speaker(as_json=settings.log_format is LogFormat.JSON)
    if once:
        card = find_card(_options(settings), say)
        print_data({"uuid": card.uuid, "library": card.library}, output, table=lambda: _print(card))
        return
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # process 1 does not hear it otherwise
    target = find_target(os.environ, kubeconfig=kubeconfig, context=context)
    own = _own_pod(pod or f"{os.environ.get('POD_NAMESPACE', '')}/{os.environ.get('POD_NAME', '')}")
    card = find_card(_options(settings), say, namespace=own.namespace, pod=own.name)
    tell_own_pod(card, target, own, say)
    wait_for_the_end()


def _options(settings: Settings) -> ProbeOptions:
    library = Path(settings.nvml_library) if settings.nvml_library else None
    return ProbeOptions(library=library, timeout_s=_ASK_WITHIN_S)


def _own_pod(text: str) -> ObjectKey:
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise RequestError(
            subject="--pod",
            value=text,
            problem="is no pod",
            accepted="NAMESPACE/NAME, or the variables POD_NAMESPACE and POD_NAME",
        )
    return ObjectKey(name, namespace)


def _print(card: OnlyCard) -> None:
    typer.echo(f"{card.uuid}  {card.library}")
