"""Pods that a real node can run."""

from typing import Any

from realnode.image import IMAGE

__all__ = ["busybox_pod", "is_running"]


def busybox_pod(name: str, script: str = "", **metadata: Any) -> dict[str, Any]:
    """Return a pod that runs a shell script and then sleeps until it is told to end; it ends at once."""
    waiting = f"{script}\ntrap exit TERM; sleep 2147483647 & wait"
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", waiting],
    }
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def is_running(pod: dict[str, Any]) -> bool:
    """Whether every container of a pod runs."""
    states = pod["status"].get("containerStatuses", [])
    return bool(states) and all("running" in each["state"] for each in states)
