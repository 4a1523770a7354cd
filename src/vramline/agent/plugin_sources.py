"""The plugin's sources on a real node, and its options by the settings."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from vramline.agent.plugin import PluginOptions
from vramline.agent.plugin_check import CheckOptions, NodeSources
from vramline.agent.pod_resources import list_held_devices
from vramline.kube.client import KubeClient
from vramline.kube.failures import NotFoundError
from vramline.kube.objects import LEDGERS, ObjectKey
from vramline.settings import Settings, StaleObservation
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.report_v1alpha1 import GpuReport

__all__ = ["plugin_options", "real_sources"]


def plugin_options(settings: Settings, folder: Path) -> PluginOptions:
    """Return what the settings say about the plugin; `folder` is kubelet's folder of device plugins."""
    return PluginOptions(
        folder=folder,
        slots_per_card=settings.slots_per_card,
        check=CheckOptions(
            margin=settings.margin,
            max_age_s=settings.observation_max_age_stream_s,
            refuses_unseen=settings.stale_observation is StaleObservation.REFUSE,
        ),
    )


def real_sources(
    client: KubeClient,
    node: str,
    *,
    newest: Callable[[], GpuReport | None],
    look: Callable[[Collection[str]], Awaitable[GpuReport]],
    pod_resources: Path,
    starts: Counter[str],
) -> NodeSources:
    """Join the agent's own eyes with the API server and this node's kubelet."""

    async def ledger() -> GpuLedger | None:
        try:
            return (await client.get(LEDGERS, ObjectKey(node))).value
        except NotFoundError:
            return None

    return NodeSources(
        node=node,
        newest=newest,
        look=look,
        ledger=ledger,
        held_devices=lambda: list_held_devices(pod_resources),
        clock=time.time,
        starts=starts,
    )
