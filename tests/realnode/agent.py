"""The agent's shipped DaemonSet, made to run on a real node of the tests: without its image and a GPU."""

import copy

from controlplane.plane import ControlPlane
from controlplane.processes import free_port
from fakenvml import FakeNvml
from install.rendered import Object
from realnode.own_python import run_own_python

__all__ = ["RUNTIME_CLASS", "agent_for_real_node"]

RUNTIME_CLASS: Object = {"metadata": {"name": "nvidia"}, "handler": "runc"}
"""The runtime that the agent asks for; here it is the only one there is."""


def agent_for_real_node(shipped: Object, plane: ControlPlane, nvml: FakeNvml, *, streams: int) -> Object:
    """Return the DaemonSet with this machine's Python and the stand-in NVML.

    API server and scheduler, with its port for streams, are on loopback, so the agent's pod has no network of
    its own, and a port of its own for its figures. It reports every second; the rest is as shipped.
    """
    port = free_port()
    adapted = copy.deepcopy(shipped)
    spec = adapted["spec"]["template"]["spec"]
    [agent] = spec["containers"]
    run_own_python(spec, agent, nvml.library.parent, nvml.state.parent)
    agent["args"] = [each for each in agent["args"] if not each.startswith("--scheduler=")]
    agent["args"] += [f"--scheduler=127.0.0.1:{streams}", f"--metrics-listen=127.0.0.1:{port}"]
    agent["args"] += [f"--library={nvml.library}", "--report-interval=1s"]
    given = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": plane.port}
    agent["env"] += [
        {"name": name, "value": str(value)} for name, value in {**given, **nvml.environment()}.items()
    ]
    spec["hostNetwork"] = True
    agent["ports"] = [{"name": "metrics", "containerPort": port}]
    for probe in ("livenessProbe", "readinessProbe"):
        agent[probe]["httpGet"]["host"] = "127.0.0.1"
    return adapted
