"""Our kinds of objects at a real API server: what `wire` writes is kept, what is wrong is refused."""

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable
from importlib.resources import files

import pytest
import yaml
from msgspec.structs import replace

from controlplane.plane import ControlPlane
from controlplane.processes import wait_until
from e2e.kube_worlds import admin
from vramline.errors import RequestError
from vramline.kube.client import KubeClient, Patch
from vramline.kube.failures import ConflictError, InvalidError
from vramline.kube.objects import BIND_REQUESTS, CRDS, LEDGERS, REPORTS, Document, ObjectKey
from vramline.model.claim import Claim
from vramline.model.gpu import Health
from vramline.model.pod import GpuShare
from vramline.units import Mib
from vramline.wire.bind_request_v1alpha1 import BindPhase, BindRequest
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.report_v1alpha1 import GpuReport, ReportedGpu, ReportedProcess

REPORT = GpuReport(
    node="n1",
    observed_at=1_767_225_600.25,
    platform="x86",
    gpus=(
        ReportedGpu(
            uuid="GPU-1",
            index=0,
            model="NVIDIA H100 80GB HBM3",
            total_mib=81_559,
            reserved_mib=550,
            used_mib=6_144,
            utilization_percent=45,
            temperature_c=51,
            health=Health.HEALTHY,
            replicas=99,
            unified=False,
            numa=1,
            mig=False,
            processes=(
                ReportedProcess(pid=4711, used_mib=6_144, pod_uid=None),
                ReportedProcess(pid=4712, used_mib=10, pod_uid="uid-1"),
                ReportedProcess(pid=4713),
            ),
        ),
        ReportedGpu(total_mib=1),
        ReportedGpu(total_mib=2_147_483_647, processes=()),
    ),
)
CLAIM = Claim(pod_uid="uid-1", pod="team/llm-0", gpu="GPU-1", mib=Mib(8_000), cores=50, epoch=3)
LEDGER = GpuLedger(
    node="n1", epoch=3, claims=(CLAIM, replace(CLAIM, pod_uid="uid-2", cores=0), replace(CLAIM, gpu="GPU-2"))
)
REQUEST = BindRequest(
    namespace="default",
    name="llm-0",
    pod_uid="uid-1",
    node="n1",
    gpus=(GpuShare("GPU-1", Mib(8_000), 50), GpuShare("GPU-2", Mib(1))),
)


def definitions() -> list[Document]:
    folder = files("vramline") / "install" / "crds"
    return [yaml.safe_load(path.read_text()) for path in sorted(folder.iterdir(), key=lambda path: path.name)]


@pytest.fixture(scope="module", autouse=True)
def installed(plane: ControlPlane) -> None:
    async def install() -> None:
        async with admin(plane) as client:
            for definition in definitions():
                await client.create(CRDS, definition)

    asyncio.run(install())
    paths = [REPORTS.collection(), LEDGERS.collection(), BIND_REQUESTS.collection("default")]
    with plane.client() as http:
        wait_until(lambda: all(http.get(path).is_success for path in paths), "the new kinds")


def run(plane: ControlPlane, story: Callable[[KubeClient], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with admin(plane) as client:
            await story(client)

    asyncio.run(tell())


def test_the_api_server_has_nothing_against_the_definitions(plane: ControlPlane) -> None:
    with plane.client() as http:
        for definition in definitions():
            name = definition["metadata"]["name"]  # type: ignore[index]
            status = http.get(f"{CRDS.collection()}/{name}").json()["status"]
            conditions = {each["type"]: each["status"] for each in status["conditions"]}

            assert conditions["Established"] == "True"
            assert conditions.get("NonStructuralSchema", "False") == "False"


def test_a_report_comes_back_as_it_was_written(plane: ControlPlane) -> None:
    async def story(client: KubeClient) -> None:
        made = await client.create(REPORTS, GpuReport(node="n1"))
        await client.update(REPORTS, made.key, REPORT, version=made.version, subresource="status")
        listed = await client.list(REPORTS)

        assert [each.value for each in listed.items] == [REPORT]

    run(plane, story)


def test_a_report_is_only_written_through_its_status(plane: ControlPlane) -> None:
    async def story(client: KubeClient) -> None:
        made = await client.create(REPORTS, replace(REPORT, node="n2"))

        assert made.value.gpus is None

    run(plane, story)


def test_a_ledger_comes_back_as_it_was_written(plane: ControlPlane) -> None:
    async def story(client: KubeClient) -> None:
        made = await client.create(LEDGERS, LEDGER)
        read = (await client.get(LEDGERS, made.key)).value

        assert read == replace(LEDGER, resource_version=str(made.version))

    run(plane, story)


def test_a_ledger_is_written_by_compare_and_swap(plane: ControlPlane) -> None:
    async def story(client: KubeClient) -> None:
        first = (await client.create(LEDGERS, GpuLedger(node="cas", epoch=1))).value
        await client.update(LEDGERS, ObjectKey("cas"), replace(first, epoch=2))

        with pytest.raises(ConflictError):
            await client.update(LEDGERS, ObjectKey("cas"), replace(first, claims=(CLAIM,)))

    run(plane, story)


def test_a_leader_whose_term_is_over_cannot_write_even_without_a_version(plane: ControlPlane) -> None:
    async def story(client: KubeClient) -> None:
        made = await client.create(LEDGERS, GpuLedger(node="fence", epoch=7))

        with pytest.raises(InvalidError, match=r"spec\.epoch.*this term is over"):
            await client.patch(LEDGERS, made.key, Patch({"spec": {"epoch": 6}}))

    run(plane, story)


def test_a_bind_request_comes_back_as_it_was_written(plane: ControlPlane) -> None:
    async def story(client: KubeClient) -> None:
        first = replace(REQUEST, attempts=1)
        made = await client.create(BIND_REQUESTS, first, namespace="default")
        anew = replace(first, node="n2", phase=BindPhase.FAILED, reason="no card", attempts=2)
        anew = replace(anew, given=(GpuShare("GPU-3", Mib(8_000)),))
        written = await client.update(BIND_REQUESTS, made.key, anew, version=made.version)

        assert (made.value, written.value) == (first, anew)

    run(plane, story)


def test_a_bind_request_stays_with_its_pod(plane: ControlPlane) -> None:
    async def story(client: KubeClient) -> None:
        made = await client.create(BIND_REQUESTS, replace(REQUEST, name="fixed"), namespace="default")

        with pytest.raises(InvalidError, match="is one pod's"):
            await client.patch(BIND_REQUESTS, made.key, Patch({"spec": {"podUID": "uid-2"}}))

    run(plane, story)


PENDING = replace(REQUEST, attempts=2)
FAILED = replace(PENDING, phase=BindPhase.FAILED, reason="no card")
SUCCEEDED = replace(PENDING, phase=BindPhase.SUCCEEDED, given=PENDING.gpus)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        pytest.param(PENDING, replace(PENDING, node="n2"), "does not change", id="another node"),
        pytest.param(PENDING, replace(PENDING, gpus=PENDING.gpus[:1]), "does not change", id="other cards"),
        pytest.param(PENDING, replace(PENDING, attempts=1), "only grow", id="fewer attempts"),
        pytest.param(FAILED, PENDING, "not pending again", id="an end that is taken back"),
        pytest.param(SUCCEEDED, FAILED, "is over", id="a failure after the success"),
        pytest.param(SUCCEEDED, replace(PENDING, attempts=3), "is over", id="an attempt after the success"),
    ],
)
def test_what_a_bind_request_says_cannot_be_unsaid(
    before: BindRequest, after: BindRequest, why: str, plane: ControlPlane, request: pytest.FixtureRequest
) -> None:
    name = f"r{zlib.crc32(request.node.nodeid.encode()):x}"

    async def story(client: KubeClient) -> None:
        made = await client.create(BIND_REQUESTS, replace(before, name=name), namespace="default")

        with pytest.raises(InvalidError, match=why):
            await client.update(BIND_REQUESTS, made.key, replace(after, name=name), version=made.version)

    run(plane, story)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(PENDING, SUCCEEDED, id="success"),
        pytest.param(PENDING, FAILED, id="failure"),
        pytest.param(FAILED, SUCCEEDED, id="a binding whose answer was lost and that landed"),
        pytest.param(FAILED, replace(PENDING, attempts=3, node="n2"), id="the next attempt, elsewhere"),
    ],
)
def test_a_bind_request_goes_on(
    before: BindRequest, after: BindRequest, plane: ControlPlane, request: pytest.FixtureRequest
) -> None:
    name = f"r{zlib.crc32(request.node.nodeid.encode()):x}"

    async def story(client: KubeClient) -> None:
        made = await client.create(BIND_REQUESTS, replace(before, name=name), namespace="default")
        wanted = replace(after, name=name)
        written = await client.update(BIND_REQUESTS, made.key, wanted, version=made.version)

        assert written.value == wanted

    run(plane, story)


@pytest.mark.parametrize(
    ("gpu", "field"),
    [
        pytest.param({"uuid": "GPU-1"}, "totalMiB", id="a card without a size"),
        pytest.param({"totalMiB": 0}, "totalMiB", id="a card of no size"),
        pytest.param({"totalMiB": 1, "health": "Fine"}, "health", id="a word that nobody knows"),
        pytest.param({"totalMiB": 1, "utilizationPercent": 101}, "utilizationPercent", id="more than all"),
        pytest.param({"totalMiB": "8Gi"}, "totalMiB", id="a quantity instead of a number"),
    ],
)
def test_a_wrong_report_is_refused(gpu: Document, field: str, plane: ControlPlane) -> None:
    head: Document = {"apiVersion": "vramline.io/v1alpha1", "kind": "GpuReport", "metadata": {"name": "n1"}}
    patch = Patch({**head, "status": {"gpus": [gpu]}})

    async def story(client: KubeClient) -> None:
        with pytest.raises(InvalidError, match=field):
            await client.patch(REPORTS, ObjectKey("n1"), patch, subresource="status")

    run(plane, story)


def test_a_report_that_only_wire_refuses_spoils_no_list(plane: ControlPlane) -> None:
    used_up = replace(REPORT, node="n3", gpus=(ReportedGpu(total_mib=100, reserved_mib=100),))

    async def story(client: KubeClient) -> None:
        made = await client.create(REPORTS, GpuReport(node="n3"))
        with pytest.raises(RequestError, match="reservedMiB"):  # it is written, but cannot be read
            await client.update(REPORTS, made.key, used_up, version=made.version, subresource="status")
        listed = await client.list(REPORTS)

        assert [each.key.name for each in listed.unreadable] == ["n3"]
        assert "n1" in [each.key.name for each in listed.items]

    run(plane, story)


def test_people_see_a_table(plane: ControlPlane) -> None:
    with plane.client() as http:
        accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        table = http.get("/apis/vramline.io/v1alpha1/gpureports/n1", headers=accept).json()

    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "Platform", "First GPU", "Observed", "Age"], json.dumps(table)
    assert table["rows"][0]["cells"][:3] == ["n1", "x86", "NVIDIA H100 80GB HBM3"]
