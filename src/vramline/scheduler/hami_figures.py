"""The same figures under HAMi's names, so that dashboards made for it keep working."""

from collections.abc import Iterator

from vramline.model.claim import Claim
from vramline.model.cluster import Cluster
from vramline.model.gpu import PhysicalGpu
from vramline.model.observation import Unknown
from vramline.telemetry.metrics import HamiGauge, Sample

__all__ = ["count_hami_figures"]

_ZONE = "vGPU"
_MIB = 2**20
_MOST_CLAIMS = 5_000


def count_hami_figures(cluster: Cluster) -> Iterator[Sample]:
    """Yield every sample of one scrape. A pod has one line a GPU, as if it were one container."""
    fleet, shown = cluster.fleet, 0
    for uuid in sorted(fleet.columns.row_of):
        gpu = fleet.gpu(uuid)
        if gpu is None:
            continue
        claims = fleet.ledger.of_card(uuid)
        yield from _card(gpu, claims)
        yield from _seen(cluster, gpu)
        for claim in claims[: _MOST_CLAIMS - shown]:
            yield from _pod(gpu, claim)
        shown += len(claims)


def _card(gpu: PhysicalGpu, claims: tuple[Claim, ...]) -> Iterator[Sample]:
    device = (_ZONE, gpu.node, gpu.uuid, str(gpu.index), gpu.model)
    allocated, cores = sum(claim.mib for claim in claims), sum(claim.cores for claim in claims)
    yield Sample(HamiGauge.MEMORY_LIMIT, gpu.usable * _MIB, device)
    yield Sample(HamiGauge.CORE_LIMIT, gpu.cores, device)
    yield Sample(HamiGauge.SHARED_COUNT, len(claims), device)
    yield Sample(HamiGauge.CORE_ALLOCATED, cores, device)
    named = (*device[:4], str(cores), gpu.model)
    yield Sample(HamiGauge.MEMORY_ALLOCATED, allocated * _MIB, named)
    overview = (*device[:4], str(cores), str(gpu.usable), gpu.model)
    yield Sample(HamiGauge.OVERVIEW, allocated * _MIB, overview)
    yield Sample(HamiGauge.MEMORY_RATIO, allocated / gpu.usable, device[:4])


def _seen(cluster: Cluster, gpu: PhysicalGpu) -> Iterator[Sample]:
    """What nobody saw has no sample."""
    seen, device = cluster.fleet.observation(gpu.uuid), (_ZONE, gpu.node, gpu.uuid, str(gpu.index), gpu.model)
    if seen is None:
        return
    if not isinstance(seen.used, Unknown):
        yield Sample(HamiGauge.HOST_MEMORY, seen.used * _MIB, device)
    if not isinstance(seen.utilization_percent, Unknown):
        yield Sample(HamiGauge.HOST_UTILIZATION, seen.utilization_percent, device)


def _pod(gpu: PhysicalGpu, claim: Claim) -> Iterator[Sample]:
    namespace, _, name = claim.pod.partition("/")
    labels = (_ZONE, namespace, gpu.node, name, "0", gpu.uuid)
    yield Sample(HamiGauge.POD_MEMORY, claim.mib * _MIB, labels)
    yield Sample(HamiGauge.POD_CORES, claim.cores, labels)
