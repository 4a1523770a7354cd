"""`make cluster`: a control plane for the shell, with fake GPU nodes, until Ctrl-C."""

import argparse
import signal
import sys
from contextlib import ExitStack

from controlplane.commands import CommandsMissingError, obtain_commands
from controlplane.kubernetes import gpu_node
from controlplane.plane import ControlPlane, control_plane
from realnode.image import IMAGE
from realnode.machine import NodeMissingError, obtain_programs
from realnode.node import real_node


def main() -> int:
    """Start it, say how to reach it, wait, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, help="fake GPU nodes (default 3)")
    parser.add_argument("--controllers", action="store_true", help="run kube-controller-manager as well")
    parser.add_argument("--real-node", action="store_true", help="run a real kubelet on containerd (as root)")
    options = parser.parse_args()
    try:
        commands = obtain_commands()
        programs = obtain_programs() if options.real_node else None
    except (CommandsMissingError, NodeMissingError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    with ExitStack() as running:
        plane = running.enter_context(control_plane(commands, controllers=options.controllers))
        _add_fake_nodes(plane, options.nodes)
        plane.start_scheduler({})
        if programs is not None:
            running.enter_context(real_node(plane, programs))
            print(f"# node localhost is real; the image it has is {IMAGE} (imagePullPolicy: Never)")  # noqa: T201
        print(f"export KUBECONFIG={plane.folder / 'admin.kubeconfig'}")  # noqa: T201
        print(f"export PATH={commands.folder}:$PATH   # kubectl; Ctrl-C here ends the cluster", flush=True)  # noqa: T201
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


def _add_fake_nodes(plane: ControlPlane, count: int) -> None:
    labels = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559"}
    with plane.client() as admin:
        for number in range(count):
            node = gpu_node(f"gpu-{number}", allocatable={"nvidia.com/gpu": "8"}, labels=labels)
            admin.post("/api/v1/nodes", json=node).raise_for_status()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
