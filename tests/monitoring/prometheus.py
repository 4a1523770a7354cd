"""A real Prometheus from Debian's packages, with our rules, that scrapes one address.

`python -m monitoring.prometheus` installs it, or says why there can be none here.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from controlplane.processes import wait_until
from house.tree import SOURCE
from realnode.machine import NodeMissingError, install_packages

__all__ = ["ALERTS", "DASHBOARD", "Prometheus", "find_tool", "prometheus"]

ALERTS = SOURCE / "install" / "monitoring" / "alerts.yaml"
DASHBOARD = SOURCE / "install" / "monitoring" / "dashboard.json"


def find_tool(name: str) -> str:
    """Return the path of prometheus or promtool; where there is none the test is skipped, but not in CI."""
    found = shutil.which(name)
    if found is not None:
        return found
    why = f"no {name}: Debian's prometheus is not installed; `make controlplane` does it as root"
    if os.environ.get("CONTROLPLANE_REQUIRED"):
        pytest.fail(why)
    pytest.skip(why)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One that runs."""

    client: httpx.Client

    def get(self, path: str, **query: str) -> Any:
        """Return the data of one of its API's answers."""
        answer = self.client.get(f"/api/v1/{path}", params=query).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """Return the labels of the alerts that fire, by name."""
        found: dict[str, list[dict[str, str]]] = {}
        for alert in self.get("alerts")["alerts"]:
            if alert["state"] == "firing":
                found.setdefault(alert["labels"]["alertname"], []).append(alert["labels"])
        return found


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run one that scrapes `target` every second and judges by our rules, with no patience."""
    program = find_tool("prometheus")
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))
    for rule in rules["groups"][0]["rules"]:
        rule["for"] = "0s"
    (folder / "alerts.yaml").write_text(yaml.safe_dump(rules))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [{"job_name": "vramline", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address={address}", "--log.level=warn"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
        httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=30) as client,
    ):
        try:
            wait_until(lambda: _is_ready(client), "Prometheus is ready")
            yield Prometheus(client)
        finally:
            process.terminate()


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


if __name__ == "__main__":
    try:
        if shutil.which("prometheus") is None:
            install_packages(["prometheus"])
    except NodeMissingError as error:
        if os.environ.get("CONTROLPLANE_REQUIRED"):
            sys.exit(str(error))
        print(error, file=sys.stderr)  # noqa: T201
