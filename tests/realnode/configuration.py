"""The files of one node: what its init mounts, and what containerd, CNI and kubelet are told."""

import json
from dataclasses import dataclass
from pathlib import Path

from controlplane.sources import wanted_minor
from realnode.image import IMAGE
from realnode.runtime import write_runtime

__all__ = ["Layout", "write_configuration"]

_PLUGINS = "/usr/lib/cni"
_SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""What kubelet writes into the kernel of the machine unless it finds it there."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things of one node are, and by which number it differs from the machine's other nodes."""

    folder: Path
    number: int
    port: int
    health_port: int

    @property
    def cgroup(self) -> str:
        """The name of its root in every cgroup hierarchy."""
        return f"vramline-node-{self.number}"

    @property
    def var_lib(self) -> Path:
        """What the node sees as /var/lib; a path here is short enough for a socket."""
        return self.folder / "lib"

    @property
    def containerd_socket(self) -> Path:
        """Where containerd answers."""
        return self.folder / "containerd.sock"


def write_configuration(layout: Layout, kubeconfig: Path) -> None:
    """Write every file; kubelet's kubeconfig is copied so that the folder is all a node needs."""
    for name in ("lib", "log", "cni", "state", "opt", "volume-plugins", "sysctl"):
        (layout.folder / name).mkdir()
    (layout.folder / "init.sh").write_text(_init_script(layout))
    (layout.folder / "containerd.toml").write_text(_containerd(layout, write_runtime(layout.folder)))
    (layout.folder / "cni" / "10-pods.conflist").write_text(json.dumps(_network(layout)))
    (layout.folder / "kubelet.json").write_text(json.dumps(_kubelet(layout)))
    (layout.folder / "kubelet.kubeconfig").write_text(kubeconfig.read_text())


def _init_script(layout: Layout) -> str:
    """Process 1 of the node: makes its view of the machine, then only collects the orphans."""
    covered = []
    for key, value in _SYSCTLS.items():
        file = layout.folder / "sysctl" / key.replace("/", ".")
        file.write_text(f"{value}\n")
        covered.append(f"mount --bind {file} /proc/sys/{key}")
    return "\n".join(
        [
            "set -e",
            "read -r pid rest < /proc/self/stat  # /proc is still the machine's, and so is this number",
            "mount -t proc proc /proc",
            "mount --make-rshared /  # kubelet and containerd see each other's mounts",
            f"mount --bind {layout.var_lib} /var/lib",
            f"mount --bind {layout.folder / 'log'} /var/log",
            "mount -t tmpfs -o mode=755 run /run",
            *covered,
            f"echo $pid > {layout.folder / 'init.new'}",
            f"mv {layout.folder / 'init.new'} {layout.folder / 'init.pid'}",
            "set +e",
            "while :; do sleep 2147483647 & wait $!; done",
            "",
        ]
    )


def _containerd(layout: Layout, runtime: Path) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    without = [f"io.containerd.snapshotter.v1.{name}" for name in ("aufs", "btrfs", "zfs", "devmapper")]
    without += ["io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
    return f"""
version = 2
root = "/var/lib/containerd"
state = "{layout.folder / "state"}"
disabled_plugins = {json.dumps(without)}
[grpc]
  address = "{layout.containerd_socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.folder / "opt"}"
[{cri}]
  sandbox_image = "{IMAGE}"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [{cri}.cni]
    bin_dir = "{_PLUGINS}"
    conf_dir = "{layout.folder / "cni"}"
  [{cri}.containerd]
    snapshotter = "overlayfs"
    [{cri}.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [{cri}.containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "{runtime}"
"""


def _network(layout: Layout) -> dict[str, object]:
    """Give a pod an address of its own; 198.18.0.0/15 is set aside for tests, a /24 of it is a node's."""
    ranges = [[{"subnet": f"198.18.{layout.number}.0/24"}]]
    addresses = {"type": "host-local", "ranges": ranges, "dataDir": str(layout.folder / "addresses")}
    pods = {"type": "ptp", "ipMasq": False, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [pods]}


def _kubelet(layout: Layout) -> dict[str, object]:
    watched = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available")
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Kubernetes 1.31 made it a choice, 1.35 made the other choice the default.
        **({"failCgroupV1": False} if wanted_minor() >= 31 else {}),
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "evictionHard": dict.fromkeys((*watched, "imagefs.inodesFree"), "0%"),
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # Whoever reaches the port is root on this machine: loopback only.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "address": "127.0.0.1",
        "port": layout.port,
        "healthzPort": layout.health_port,
        "readOnlyPort": 0,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "volumePluginDir": str(layout.folder / "volume-plugins"),
        "nodeStatusUpdateFrequency": "1s",
    }
