"""`vramline deploy isvc`: an OME inference service, sized, placed and waited for."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from vramline.cli.apps import examples, new_app
from vramline.cli.client import VARIABLE
from vramline.cli.model_options import (
    ConcurrencyOption,
    ContextOption,
    DtypeOption,
    KvDtypeOption,
    MaxNumSeqsOption,
    QuantizationOption,
    Serving,
)
from vramline.cli.output import OutputFormat, OutputOption, print_data
from vramline.errors import RequestError, VramlineError
from vramline.inference.deployment import Placement, ServiceOrder
from vramline.inference.ome import OMEController
from vramline.inference.service_state import ServiceState
from vramline.inference.source import load_model
from vramline.simulate.files import read_paths
from vramline.units import parse_vram
from vramline.wire.ome_service import ServiceManifest, read_inference_service
from vramline.wire.ome_v1beta1 import DeploymentMode, sanitize_dns_name

__all__ = ["app"]

app = new_app()

_POLL_S = 2.0

NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Name of the service.", show_default=False)
]
ModelOption = Annotated[str | None, typer.Option(help="OME's ClusterBaseModel, by name.", show_default=False)]
RuntimeOption = Annotated[
    str | None, typer.Option(help="OME's ClusterServingRuntime, by name.", show_default=False)
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", help="Where the service is made.  [default: default]", show_default=False
    ),
]
FileOption = Annotated[
    str | None,
    typer.Option(
        "-f",
        "--file",
        metavar="FILE",
        help="An InferenceService as YAML or JSON, to which size and placement are added.",
        show_default=False,
    ),
]
DegreeOption = Annotated[
    int | None,
    typer.Option(
        help="GPUs of all its pods together.  [default: as the runtime has]",
        min=1,
        max=1024,
        show_default=False,
    ),
]
PlacementOption = Annotated[
    Placement | None,
    typer.Option(
        help="soft prefers the best node, pin requires it, scheduler leaves it to Vramline."
        "  [default: scheduler where a need is given, else soft]",
        show_default=False,
    ),
]
ModeOption = Annotated[
    DeploymentMode | None,
    typer.Option(help="How OME makes pods of it.  [default: as the runtime is made]", show_default=False),
]
WorkersOption = Annotated[
    int, typer.Option(help="MultiNode: pods beside the leader; 0: as the runtime has.", min=0, max=1023)
]
GpuMemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Memory on each GPU, such as 20Gi; the engine is told.", show_default=False
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="MODEL",
        help="Instead: estimate it from a config.json, model folder or whatever `vramline estimate` takes.",
        show_default=False,
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the object; write and reserve nothing.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until it is ready, and say how far it is.")]
TimeoutOption = Annotated[int, typer.Option(metavar="SECONDS", help="How long to wait.", min=1)]
TtlOption = Annotated[
    int,
    typer.Option(
        metavar="SECONDS", help="How long memory is held for pods that do not come.", min=1, max=3600
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=f"A scheduler that holds the memory until the pods come.  [default: ${VARIABLE}, else none]",
        show_default=False,
    ),
]
TokenFileOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Token for a scheduler on another machine.", show_default=False),
]
CaFileOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Who signed its certificate.", show_default=False),
]
KubeconfigOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Of the cluster.", show_default=False)
]


@app.callback()
def deploy() -> None:
    """Deploy something that is served by models on GPUs."""


@app.command(
    epilog=examples(
        "vramline deploy isvc chat --model llama-3-1-8b --runtime vllm-llama-8b --config config.json",
        "vramline deploy isvc chat --model m --runtime r --gpu-memory 20Gi --wait",
        "vramline deploy isvc chat --model m --runtime r --placement pin --dry-run -o yaml",
        "vramline deploy isvc -f service.yaml --gpu-memory 20Gi",
    )
)
def isvc(  # noqa: PLR0913 — one parameter an option
    name: NameArgument = None,
    *,
    file: FileOption = None,
    model: ModelOption = None,
    runtime: RuntimeOption = None,
    namespace: NamespaceOption = None,
    gpus: DegreeOption = None,
    placement: PlacementOption = None,
    mode: ModeOption = None,
    workers: WorkersOption = 0,
    gpu_memory: GpuMemoryOption = None,
    config: ConfigOption = None,
    context: ContextOption = None,
    concurrency: ConcurrencyOption = 1,
    dtype: DtypeOption = "auto",
    kv_dtype: KvDtypeOption = "auto",
    quantization: QuantizationOption = None,
    max_num_seqs: MaxNumSeqsOption = None,
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = 600,
    hold: TtlOption = 600,
    server: ServerOption = None,
    server_token: TokenFileOption = None,
    server_ca: CaFileOption = None,
    kubeconfig: KubeconfigOption = None,
    output: OutputOption = OutputFormat.YAML,
) -> None:
    """Make an OME InferenceService whose pods get the VRAM they claim, and claim what they use.

    Its need is given (--gpu-memory) or estimated (--config), and the engine's flags are set so that it takes
    no more. With --server the memory is held by the scheduler before the service is made: where there is no
    room, nothing is made. Exit status 1 where it is refused or does not get ready.
    """
    serving = Serving(
        context=context,
        concurrency=concurrency,
        dtype=dtype,
        kv_dtype=kv_dtype,
        quantization=quantization,
        max_num_seqs=max_num_seqs,
    )
    service = _read_service(file, name=name, namespace=namespace, model=model, runtime=runtime)
    order = ServiceOrder(
        name=service.name,
        namespace=service.namespace,
        model=service.model,
        runtime=service.runtime,
        copies=service.copies,
        written=service.document,
        gpus=gpus,
        placement=placement or (Placement.SCHEDULER if gpu_memory or config else Placement.SOFT),
        mode=mode or service.mode,
        workers=workers or service.workers,
        gpu_memory=_read_memory(gpu_memory, config),
        served=None if config is None else load_model(config),
        plan=serving.plan(),
        ttl_s=hold,
    )
    controller = _open_controller(kubeconfig, server, server_token, server_ca)
    document = controller.deploy(order, dry_run=dry_run)
    if dry_run:
        print_data(document, OutputFormat.YAML if output is OutputFormat.TABLE else output, table=_nothing)
    elif wait:
        _wait(controller, order, timeout)


def _open_controller(
    kubeconfig: Path | None, server: str | None, token_file: str | None, ca_file: str | None
) -> OMEController:
    return OMEController(
        None if kubeconfig is None else str(kubeconfig),
        say=lambda line: typer.echo(line, err=True),
        server=server or os.environ.get(VARIABLE) or None,
        token_file=token_file,
        ca_file=ca_file,
    )


def _nothing() -> None:
    """An object has no table."""


def _wait(controller: OMEController, order: ServiceOrder, timeout: int) -> None:
    """Say how far the service is whenever that changes; end with status 1 where it does not get ready."""
    start = time.monotonic()

    def tell(state: ServiceState) -> None:
        hopeless = state.final or state.stuck
        words = state.problem if hopeless else state.detail or state.problem
        typer.echo(f"{time.monotonic() - start:6.0f} s  {state.stage:<8} {words}".rstrip(), err=True)

    if controller.wait_for_ready(order.name, order.namespace, timeout, _POLL_S, on_change=tell):
        typer.echo(controller.get_service_url(order.name, order.namespace) or "", nl=True)
        return
    raise VramlineError(f"{order.namespace}/{order.name} did not get ready: {controller.last_problem}")


def _read_service(file: str | None, **given: str | None) -> ServiceManifest:
    """Return what a file says, overruled by what is given; what nobody says is missing."""
    document: dict[str, Any] = {} if file is None else _read_file(file)
    base = (
        read_inference_service(document)
        if file is not None
        else ServiceManifest(
            name="", namespace="", model="", runtime="", mode=None, workers=0, copies=1, document={}
        )
    )
    service = msgspec.structs.replace(base, **{key: value for key, value in given.items() if value})
    for field, option in (("name", "NAME"), ("model", "--model"), ("runtime", "--runtime")):
        if not getattr(service, field) and (file is None or field != "runtime"):
            raise RequestError(
                subject="deploy isvc", field=option, problem="is missing", accepted="it, or -f with a service"
            )
    if sanitize_dns_name(service.name, 50) != service.name:
        raise RequestError(
            subject="deploy isvc",
            field="NAME",
            value=service.name,
            problem="is not a name that OME takes",
            accepted="at most 50 lower-case letters, digits and hyphens, a letter first",
        )
    return msgspec.structs.replace(service, namespace=service.namespace or "default")


def _read_file(path: str) -> dict[str, Any]:
    """Return the one service of a file; Namespaces beside it are left to whoever wrote them."""
    found = read_paths([path], stdin=sys.stdin.buffer)
    if found.problems:
        raise found.problems[0]
    contents = [content for _, content in found.documents if isinstance(content, dict)]
    services = [each for each in contents if each.get("kind") == "InferenceService"]
    if len(services) != 1:
        raise RequestError(
            subject=path, problem=f"has {len(services)} InferenceServices in it", accepted="one of them"
        )
    return services[0]


def _read_memory(text: str | None, config: str | None) -> int | None:
    if text is None:
        return None
    if config is not None:
        raise RequestError(
            subject="deploy isvc",
            field="--gpu-memory, --config",
            problem="both say how much is needed",
            accepted="one of them",
        )
    try:
        return parse_vram(text)
    except ValueError as error:
        raise RequestError(
            subject="deploy isvc",
            field="--gpu-memory",
            value=text,
            problem=str(error),
            accepted="20480, 20480Mi or 20Gi",
        ) from None
