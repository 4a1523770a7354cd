"""Reservation pods, made to run on a real node of the tests: without their image and a GPU."""

import copy
from pathlib import Path
from typing import Any

from controlplane.plane import ControlPlane
from fakenvml import FakeNvml
from realnode.node import RealNode
from realnode.own_python import COMMAND, folders_of_python, run_own_python
from realnode.runtime import write_adaptation

__all__ = ["reservation_for_real_node", "run_reservations"]


def reservation_for_real_node(
    pod: dict[str, Any], plane: ControlPlane, nvml: FakeNvml, *, library: Path | None = None
) -> dict[str, Any]:
    """Return the pod with this machine's Python and the stand-in NVML; the API server is on loopback.

    Without `library` the pod has to find NVML by what its profile gives it. The rest is as it was made.
    """
    adapted = copy.deepcopy(pod)
    spec = adapted["spec"]
    [container] = spec["containers"]
    nvml.state.parent.chmod(0o755)  # it does not run as root
    folders = [nvml.state.parent] if library is None else [nvml.state.parent, library.parent]
    run_own_python(spec, container, *folders)
    given = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": plane.port}
    given |= nvml.environment() | ({} if library is None else {"VRAMLINE_NVML_LIBRARY": library})
    container["env"] += [{"name": name, "value": str(value)} for name, value in given.items()]
    spec["hostNetwork"] = True
    return adapted


def run_reservations(node: RealNode, plane: ControlPlane, nvml: FakeNvml) -> None:
    """Have the node run reservation pods as they are made, with this machine's Python for their image."""
    nvml.state.parent.chmod(0o755)  # it does not run as root
    given = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": plane.port}
    given |= {**nvml.environment(), "VRAMLINE_NVML_LIBRARY": nvml.library}
    folders = [*folders_of_python(), nvml.state.parent, nvml.library.parent]
    write_adaptation(node.folder, "reserve", command=COMMAND, folders=folders, env=given)
