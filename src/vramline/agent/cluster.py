"""The two things an agent writes in its cluster: its node's report, and one annotation of its Node."""

import structlog

from vramline.errors import TransientError
from vramline.kube.client import KubeClient, Patch
from vramline.kube.failures import ApiError, ConflictError, NotFoundError
from vramline.kube.objects import NODES, REPORTS, ObjectKey
from vramline.wire.keys import FREED
from vramline.wire.report_v1alpha1 import GpuReport, encode_report
from vramline.wire.times import format_time

__all__ = ["KubeReports", "stamp_node"]


class KubeReports:
    """The report object of one node; made when it is missing, and owned by the Node, to go with it."""

    def __init__(self, client: KubeClient, node: str) -> None:
        self._client = client
        self._key = ObjectKey(node)
        self._version: int | None = None
        """The version that the next write replaces; None: to be read first."""

    async def write(self, report: GpuReport) -> None:
        """Replace the status; raises `ApiError`, after which the object is read again."""
        version, self._version = self._version, None
        if version is None:
            version = await self._find_or_create()
        try:
            stored = await self._client.update(
                REPORTS, self._key, report, version=version, subresource="status"
            )
        except (ConflictError, NotFoundError) as error:
            raise TransientError(f"the report changed meanwhile: {error}") from error
        self._version = stored.version

    async def _find_or_create(self) -> int:
        try:
            return (await self._client.get(REPORTS, self._key)).version
        except NotFoundError:
            pass
        document = encode_report(GpuReport(node=self._key.name))
        document["metadata"] = {"name": self._key.name, "ownerReferences": await self._owners()}
        del document["status"]
        made = await self._client.create(REPORTS, document)
        structlog.get_logger().info("report.created", node=self._key.name)
        return made.version

    async def _owners(self) -> list[dict[str, str]]:
        node = await self._client.get(NODES, self._key)
        return [{"apiVersion": "v1", "kind": "Node", "name": self._key.name, "uid": node.uid}]


async def stamp_node(client: KubeClient, node: str, at: float) -> bool:
    """Say on the Node that memory became free, which makes kube-scheduler try waiting pods again."""
    patch = Patch({"metadata": {"annotations": {FREED: format_time(at)}}})
    try:
        await client.patch(NODES, ObjectKey(node), patch)
    except ApiError as error:
        structlog.get_logger().warning("node.stamp.failed", node=node, error=str(error))
        return False
    return True
