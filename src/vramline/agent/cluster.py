"""The one thing an agent writes in its cluster: its node's report."""

import structlog

from vramline.errors import TransientError
from vramline.kube.client import KubeClient
from vramline.kube.failures import ConflictError, NotFoundError
from vramline.kube.objects import NODES, REPORTS, ObjectKey
from vramline.wire.report_v1alpha1 import GpuReport, encode_report

__all__ = ["KubeReports"]


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
