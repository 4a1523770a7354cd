"""From manifests to the printed result: the order of nodes in the input does not matter."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from simulate.clusters import card, node, pod, report, run
from vramline.model.ask import PolicyName, RealtimeMode
from vramline.model.rules import Rules
from vramline.simulate.report import report_run

Document = dict[str, Any]


@st.composite
def machines(draw: st.DrawFn, name: str) -> list[Document]:
    """A node and, mostly, its agent's report; now and then one that contradicts it or shares a card."""
    count = draw(st.integers(1, 3))
    total = draw(st.sampled_from([16_384, 32_600]))
    cards = [
        card(
            draw(st.sampled_from([f"GPU-{name}-{index}"] * 9 + ["GPU-shared"])),
            total,
            index=index,
            usedMiB=(used := draw(st.sampled_from([0, 0, 5_000]))),
            utilizationPercent=draw(st.sampled_from([0, 50])),
            processes=[{"pid": 1, "usedMiB": used, "podUID": None}] if used else [],
        )
        for index in range(count)
    ]
    labels_cards = draw(st.sampled_from([count] * 9 + [count + 1]))
    documents = [node(name, total, cards=labels_cards)]
    if draw(st.sampled_from([True, True, False])):
        documents.append(report(*cards, node=name))
    return documents


pods = st.lists(
    st.builds(
        lambda mib, node_name: {"mib": mib, **({"nodeName": node_name} if node_name else {})},
        st.sampled_from([None, 100, 4_000, 9_000, 16_284, 30_000]),
        st.sampled_from([None, None, None, "a", "b"]),
    ),
    max_size=8,
)


@given(
    parts=st.tuples(*(machines(name) for name in "abcd")),
    wanted=pods,
    shuffle=st.permutations(range(4)),
    policy=st.sampled_from(PolicyName),
    mode=st.sampled_from(RealtimeMode),
)
def test_the_order_of_nodes_in_the_input_does_not_matter(
    parts: tuple[list[Document], ...],
    wanted: list[dict[str, Any]],
    shuffle: list[int],
    policy: PolicyName,
    mode: RealtimeMode,
) -> None:
    asks = [pod(f"p{number}", **fields) for number, fields in enumerate(wanted)]
    rules = Rules(policy=policy, mode=mode)

    def result(order: list[int]) -> object:
        nodes = [document for number in order for document in parts[number]]
        printed = report_run(run(*nodes, *asks, rules=rules, all_nodes=True))
        places = {"problems": sorted(printed.problems)}  # they name where in the input an object stood
        return msgspec.to_builtins(msgspec.structs.replace(printed, problems=[])) | places

    assert result(shuffle) == result(sorted(shuffle))
