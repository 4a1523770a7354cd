"""The OCI runtime of a real node: runc, and what stands for the image and the GPU that there are none of.

As with NVIDIA's runtime the change is made below kubelet, when a container is created: the pod that the API
server has is exactly the one that the product made, and has passed every policy.
"""

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["write_adaptation", "write_runtime"]

_TESTS = Path(__file__).parent.parent
_ADAPTATIONS = "adaptations"
_IMAGE_COMMAND = ["/bin/sleep", "2147483647"]
"""What the image runs by itself; the arguments of a container follow."""


def write_runtime(folder: Path) -> Path:
    """Write the program that containerd calls; containers are as they were asked for until told otherwise."""
    (folder / _ADAPTATIONS).mkdir()
    runtime = folder / "runtime"
    runtime.write_text(
        f"""#!/bin/sh
last=
bundle=
for each; do
  [ "$last" = --bundle ] && bundle=$each
  last=$each
done
for adaptation in {folder / _ADAPTATIONS}/*; do
  [ -n "$bundle" ] && [ -f "$adaptation" ] || continue
  if grep -q "cri.container-name\\":\\"${{adaptation##*/}}\\"" "$bundle/config.json"; then
    PYTHONPATH={_TESTS} {sys.executable} -m realnode.runtime "$bundle/config.json" "$adaptation" || exit 1
  fi
done
exec runc "$@"
"""
    )
    runtime.chmod(0o755)
    return runtime


def write_adaptation(
    node: Path, container: str, *, command: list[str], folders: list[Path], env: dict[str, object]
) -> None:
    """Have containers of this name, on the node of this folder, run a command of the machine.

    They see these folders at their places, read-only, these variables, and the machine's network.
    """
    wanted = {"command": command, "folders": [str(each) for each in dict.fromkeys(folders)], "env": env}
    (node / _ADAPTATIONS / container).write_text(json.dumps(wanted, default=str))


def adapt(configuration: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Change what runc is told; the arguments after the image's own command are kept."""
    process, env = configuration["process"], wanted["env"]
    asked = process["args"][len(_IMAGE_COMMAND) :]
    process["args"] = [*wanted["command"], *asked]
    kept = [each for each in process["env"] if each.partition("=")[0] not in env]
    process["env"] = [*kept, *(f"{name}={value}" for name, value in env.items())]
    configuration["mounts"] += [
        {"destination": folder, "type": "bind", "source": folder, "options": ["rbind", "ro"]}
        for folder in wanted["folders"]
    ]
    linux = configuration["linux"]
    linux["namespaces"] = [each for each in linux["namespaces"] if each["type"] != "network"]


def _main(configuration: Path, wanted: Path) -> None:
    told = json.loads(configuration.read_text())
    adapt(told, json.loads(wanted.read_text()))
    configuration.write_text(json.dumps(told))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]))
