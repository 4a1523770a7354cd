"""`make cluster`: a control plane for the shell, with fake GPU nodes, until Ctrl-C."""

import argparse
import signal
import sys

from controlplane.commands import CommandsMissingError, obtain_commands
from controlplane.kubernetes import gpu_node
from controlplane.plane import control_plane


def main() -> int:
    """Start it, say how to reach it, wait, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=3, help="fake GPU nodes (default 3)")
    parser.add_argument("--controllers", action="store_true", help="run kube-controller-manager as well")
    options = parser.parse_args()
    try:
        commands = obtain_commands()
    except CommandsMissingError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    with control_plane(commands, controllers=options.controllers) as plane, plane.client() as admin:
        for number in range(options.nodes):
            labels = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81559"}
            node = gpu_node(f"gpu-{number}", allocatable={"nvidia.com/gpu": "8"}, labels=labels)
            admin.post("/api/v1/nodes", json=node).raise_for_status()
        plane.start_scheduler({})
        print(f"export KUBECONFIG={plane.folder / 'admin.kubeconfig'}")  # noqa: T201
        print(f"export PATH={commands.folder}:$PATH   # kubectl; Ctrl-C here ends the cluster", flush=True)  # noqa: T201
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
