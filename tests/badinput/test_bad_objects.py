"""Objects that are malformed or contradict themselves, each other or the rest of the input."""

import pytest

from badinput.command import BesideGood

_POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: bad, namespace: a}\n"
_DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: bad, namespace: a}\n"
_LEDGER = "apiVersion: vramline.io/v1alpha1\nkind: GpuLedger\nmetadata: {name: good}\n"


def _node(*, labels: str = "", annotations: str = "", allocatable: str = 'nvidia.com/gpu: "1"') -> str:
    return (
        "apiVersion: v1\nkind: Node\n"
        f"metadata: {{name: bad, labels: {{{labels}}}, annotations: {{{annotations}}}}}\n"
        f"status: {{allocatable: {{{allocatable}}}}}\n"
    )


def _report(
    card: str, *, at: str = "2026-01-01T00:00:00Z", name: str = "bad", version: str = "v1alpha1"
) -> str:
    return (
        f"apiVersion: vramline.io/{version}\nkind: GpuReport\nmetadata: {{name: {name}}}\n"
        f'status: {{observedAt: "{at}", gpus: [{card}]}}\n'
    )


def _placed_pod(annotations: str, *, node: str = "good") -> str:
    return (
        "apiVersion: v1\nkind: Pod\n"
        f"metadata: {{name: bad, namespace: a, annotations: {{gpu-memory: '1000', {annotations}}}}}\n"
        f"spec: {{nodeName: {node}, containers: [{{name: c}}]}}\n"
    )


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(
            _POD + "spec: {containers: none}\n", ("spec.containers", "'none'", "list"), id="text for a list"
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: {}\n", ("Pod", "metadata.name", "missing"), id="no name"
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a/b}\n",
            ("metadata.name", "a/b"),
            id="a slash in a name",
        ),
        pytest.param(
            _POD + "status: {phase: Sleeping}\n",
            ("status.phase", "'Sleeping'", "Running"),
            id="unknown phase",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: bad, creationTimestamp: yesterday}\n",
            ("creationTimestamp", "'yesterday'", "RFC 3339"),
            id="a time in words",
        ),
        pytest.param("metadata: {name: x}\n", ("bad.yaml:1", "apiVersion", "missing"), id="no kind"),
        pytest.param("- a\n- b\n", ("bad.yaml:1", "not a Kubernetes object"), id="a list of words"),
        pytest.param("hello\n", ("bad.yaml:1", "'hello'", "not a Kubernetes object"), id="a word"),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems: {a: b}\n", ("items", "list"), id="items that are no list"
        ),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems: [5]\n",
            ("item 1", "not a Kubernetes object"),
            id="an odd item",
        ),
        pytest.param(
            _POD + "spec: {tolerations: [{key: a, operator: Sometimes}]}\n",
            ("toleration", "Sometimes"),
            id="toleration",
        ),
        pytest.param(
            _POD + "spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:"
            " {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Near}]}]}}}}\n",
            ("affinity", "'Near'", "NotIn"),
            id="an unknown operator",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Node\nmetadata: {name: good}\n",
            ("Node good", "metadata.name", "set aside"),
            id="two nodes of one name",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: good, namespace: good}\n",
            ("Pod good/good", "metadata.name", "set aside"),
            id="two pods of one name",
        ),
        pytest.param(
            _POD.replace("a}", "a, uid: u}")
            + "---\n"
            + _POD.replace("bad,", "worse,").replace("a}", "a, uid: u}"),
            ("Pod a/worse", "metadata.uid", "'u'", "a/bad"),
            id="two pods of one UID",
        ),
        pytest.param(
            _node(labels='nvidia.com/gpu.count: "2", nvidia.com/gpu.memory: "32600"')
            + "---\n"
            + _report("{uuid: GPU-1, totalMiB: 81559}"),
            ("Node bad", "GpuReport", "labels", "2 GPUs", "1 GPU"),
            id="labels that contradict the report",
        ),
        pytest.param(
            _node(labels='nvidia.com/gpu.count: "1", nvidia.com/gpu.memory: "32600"')
            + "---\n"
            + _report("{uuid: GPU-1, totalMiB: 81559}"),
            ("Node bad", "32,600", "81,559"),
            id="a total that contradicts the report",
        ),
        pytest.param(
            _node(labels="nvidia.com/gpu.count: two"),
            ("gpu.count", "'two'", "0 to 1024"),
            id="count in words",
        ),
        pytest.param(
            _node(labels='nvidia.com/gpu.count: "1", nvidia.com/gpu.memory: 32GB'),
            ("gpu.memory", "'32GB'", "whole number"),
            id="label memory with a unit",
        ),
        pytest.param(
            _node(labels='nvidia.com/gpu.count: "1000000"'), ("gpu.count", "'1000000'"), id="a million cards"
        ),
        pytest.param(
            _node(labels="nvidia.com/gpu.count: 1"), ("gpu.count", '"1"'), id="a label without quotes"
        ),
        pytest.param(
            _node(allocatable="nvidia.com/gpu: many"), ("nvidia.com/gpu", "'many'"), id="devices in words"
        ),
        pytest.param(_node(allocatable="cpu: -3"), ("allocatable.cpu", "-3"), id="negative CPU of a node"),
        pytest.param(
            _node(annotations="hami.io/node-nvidia-register: '[{'"), ("register", "JSON"), id="a cut register"
        ),
        pytest.param(
            _node(annotations="hami.io/node-nvidia-register: 'GPU-1,10,abc,100,T4,0,true:'"),
            ("register", "card 1", "devmem", "'abc'"),
            id="a register with memory in words",
        ),
        pytest.param(
            _node(
                annotations="hami.io/node-nvidia-register: 'GPU-1,1,9,100,T4,0,true:GPU-1,1,9,100,T4,0,true:'"
            ),
            ("register", "'GPU-1'", "twice"),
            id="a register with a card twice",
        ),
        pytest.param(
            _node(annotations="vramline.io/gpus-physical: lots"),
            ("gpus-physical", "'lots'", "2x81559"),
            id="lots of cards",
        ),
        pytest.param(_report("{uuid: GPU-1, totalMiB: 0}"), ("totalMiB", "= 0"), id="a card without memory"),
        pytest.param(
            _report("{uuid: GPU-1, totalMiB: -1}"), ("totalMiB", "= -1"), id="a card with less than none"
        ),
        pytest.param(_report("{uuid: GPU-1, totalMiB: .nan}"), ("totalMiB", "nan"), id="a card of NaN MiB"),
        pytest.param(_report("{uuid: GPU-1, totalMiB: .inf}"), ("totalMiB", "inf"), id="a card without end"),
        pytest.param(_report("{uuid: GPU-1, totalMiB: 100.5}"), ("totalMiB", "100.5"), id="half a MiB"),
        pytest.param(
            _report("{uuid: GPU-1, totalMiB: 9223372036854775808}"), ("totalMiB", "922"), id="2^63 MiB"
        ),
        pytest.param(_report("{uuid: GPU-1}"), ("gpus[0]", "totalMiB"), id="a card of unknown size"),
        pytest.param(
            _report("{uuid: GPU-1, totalMiB: 100, reservedMiB: 100}"),
            ("reservedMiB", "100"),
            id="all is reserved",
        ),
        pytest.param(
            _report("{uuid: GPU-1, totalMiB: 100, usedMiB: -1}"), ("usedMiB", "-1"), id="negative use"
        ),
        pytest.param(
            _report("{uuid: GPU-1, totalMiB: 100, health: Fine}"),
            ("health", "'Fine'", "Healthy"),
            id="unknown health",
        ),
        pytest.param(
            _report("{uuid: GPU-1, totalMiB: 100, utilizationPercent: 200}"),
            ("utilizationPercent", "200"),
            id="200 %",
        ),
        pytest.param(
            _report("{uuid: GPU-1, totalMiB: 100}", at="now"),
            ("observedAt", "'now'", "RFC 3339"),
            id="observed now",
        ),
        pytest.param(
            _report("{uuid: GPU-1, totalMiB: 100}, {uuid: GPU-1, totalMiB: 100}"),
            ("gpus[1].uuid", "'GPU-1'", "twice"),
            id="a card twice",
        ),
        pytest.param(
            _report("{uuid: GPU-1, totalMiB: 100}", version="v9"),
            ("vramline.io/v9", "v1alpha1"),
            id="a later version",
        ),
        pytest.param(
            _placed_pod("", node="nowhere"),
            ("Pod a/bad", "spec.nodeName", "'nowhere'"),
            id="a pod on an unknown node",
        ),
        pytest.param(
            _placed_pod("""vramline.io/allocation: '{"node":"good","gpus":[{"uuid":"GPU-x","mib":1000}]}'"""),
            ("allocation", "'GPU-x'", "good/gpu-0"),
            id="an allocation naming an unknown UUID",
        ),
        pytest.param(
            _placed_pod("""vramline.io/allocation: '{"node":"x","gpus":[{"uuid":"GPU-x","mib":1000}]}'"""),
            ("allocation.node", "'x'", "good"),
            id="an allocation on another node",
        ),
        pytest.param(
            _placed_pod("vramline.io/allocation: '{'"), ("allocation", "'{'", "JSON"), id="a cut allocation"
        ),
        pytest.param(
            _placed_pod("hami.io/vgpu-devices-allocated: 'GPU-1,NVIDIA'"),
            ("vgpu-devices-allocated", "'GPU-1,NVIDIA'", "uuid,vendor,MiB,cores"),
            id="a cut device list",
        ),
        pytest.param(
            _LEDGER + "spec: {claims: {GPU-x: [{podUID: u, pod: a/b, mib: 100}]}}\n",
            ("GpuLedger good", "GPU-x", "frozen"),
            id="a ledger naming an unknown card",
        ),
        pytest.param(
            _LEDGER + "spec: {claims: {good/gpu-0: [{podUID: u, pod: a/b, mib: -100}]}}\n",
            ("GpuLedger good", "mib"),
            id="a negative claim",
        ),
        pytest.param(
            _LEDGER
            + "spec: {claims: {good/gpu-0: [{podUID: u, pod: p, mib: 1}, {podUID: u, pod: p, mib: 1}]}}\n",
            ("GpuLedger good", "good/gpu-0", "two claims"),
            id="two claims of one pod on a card",
        ),
        pytest.param(
            _DEPLOYMENT + "spec: {replicas: -1, template: {}}\n",
            ("Deployment a/bad", "spec.replicas", "-1"),
            id="-1 pods",
        ),
        pytest.param(
            _DEPLOYMENT + "spec: {replicas: 99999999999, template: {}}\n",
            ("Deployment a/bad", "spec.replicas", "99999999999"),
            id="too many pods",
        ),
        pytest.param(_DEPLOYMENT + "spec: {}\n", ("Deployment a/bad", "spec", "template"), id="no template"),
        pytest.param(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: bad}\nspec: {parallelism: -1, template: {}}\n",
            ("Job default/bad", "spec.parallelism", "-1"),
            id="a job of -1 pods",
        ),
    ],
)
def test_a_bad_object_is_one_line_and_the_good_pod_is_placed(
    content: str, says: tuple[str, ...], beside_good: BesideGood
) -> None:
    said = beside_good(content)

    assert said.status == 2
    (error,) = said.errors
    assert [word for word in says if word not in error] == []
    assert said.good_is_bound


def test_a_card_on_two_nodes_is_handed_out_by_neither(beside_good: BesideGood) -> None:
    card = "{uuid: GPU-1, totalMiB: 100000}"

    said = beside_good(_report(card) + "---\n" + _report(card, name="bad2"))

    assert said.status == 2
    assert [error.split(":")[0] for error in said.errors] == ["Node bad", "Node bad2"]
    assert said.good_is_bound


def test_an_unreadable_ledger_leaves_nothing_free_on_its_node(beside_good: BesideGood) -> None:
    said = beside_good(_LEDGER + "spec: {claims: {good/gpu-0: [{podUID: u, pod: a/b, mib: 0}]}}\n")

    assert said.out.splitlines()[1].split()[:3] == ["Bound", "good/good", "spare"]


def test_other_kinds_are_named_and_are_no_mistake(beside_good: BesideGood) -> None:
    said = beside_good(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\napiVersion: v1\nkind: Service\n"
    )

    assert (said.status, said.errors) == (0, [])
    assert said.others == ["note: not read: ConfigMap (1), Service (1)"]


def test_names_that_would_move_the_cursor_are_printed_harmlessly(beside_good: BesideGood) -> None:
    said = beside_good('apiVersion: v1\nkind: Pod\nmetadata: {name: "a\\e[31mb", namespace: a}\n')

    assert "\x1b" not in said.out + "".join(said.errors)
    assert said.good_is_bound
