"""What is there already: the pods of a snapshot become claims before anything new is placed.

A pod's cards are the ones that its own annotation names, then the ledger's, then its KAI group's; where
nobody says, the engine assigns them on the pod's node. Evidence that names a card which is not there, or
two pieces of evidence that disagree, freeze that node and only that node.
"""

from collections.abc import Iterable, Mapping

import msgspec

from vramline.decide.sizes import size_on_each_card
from vramline.errors import RequestError
from vramline.model.ask import Ask
from vramline.model.claim import Claim, ClaimState
from vramline.model.fleet import Fleet
from vramline.model.gpu import PhysicalGpu
from vramline.model.node import NodeProblem, ProblemKind
from vramline.model.pod import GpuShare, Pod, PodPhase
from vramline.model.rules import Rules
from vramline.units import Mib

__all__ = ["adopt_bound_pod", "adopt_pods", "claims_of", "gpus_of_groups"]

_STATES = {
    PodPhase.BOUND: ClaimState.BOUND,
    PodPhase.RUNNING: ClaimState.RUNNING,
    PodPhase.RELEASING: ClaimState.RELEASING,
}

_NOTHING = GpuShare("", Mib(0))


def claims_of(pod: Pod, shares: Iterable[GpuShare]) -> tuple[Claim, ...]:
    """Return the claims of a pod that is on its node already."""
    uid, key, state, started_at = pod.uid, pod.key, _STATES[pod.phase], pod.started_at
    ended_at = pod.ended_at if state is ClaimState.RELEASING else None
    return tuple(
        [
            Claim(
                pod_uid=uid,
                pod=key,
                gpu=share.uuid,
                mib=share.mib,
                cores=share.cores,
                state=state,
                started_at=started_at,
                ended_at=ended_at,
            )
            for share in shares
        ]
    )


def gpus_of_groups(pods: Iterable[Pod]) -> dict[str, str]:
    """Return card by KAI group, as the reservation pods tell it."""
    return dict([pod.reserves_group for pod in pods if pod.reserves_group is not None])


def adopt_pods(
    fleet: Fleet, pods: Iterable[Pod], rules: Rules, ledger: Mapping[str, tuple[Claim, ...]]
) -> list[RequestError]:
    """Turn every pod that is on a node into claims; return what could not be believed.

    `ledger` is by pod UID. Pods whose cards are named come first, so that those without get what is left.
    A pod that is still pending holds what the ledger reserved for it.
    """
    pods = tuple(pods)
    groups = gpus_of_groups(pods)
    problems: list[RequestError] = []
    named: list[Claim] = []
    unnamed: list[tuple[Pod, Ask]] = []
    for pod in pods:
        claims, phase = ledger.get(pod.uid, ()), pod.phase
        if phase is PodPhase.PENDING:
            named += claims
        if pod.node is None or pod.ask is None or phase not in _STATES or fleet.node(pod.node) is None:
            continue
        try:
            shares = _named_cards(fleet, pod, pod.ask, groups, claims, rules)
        except RequestError as error:
            fleet.freeze(pod.node, NodeProblem(ProblemKind.FROZEN, str(error)))
            problems.append(error)
            shares = _at_worst(fleet, pod, claims)
        if shares is None:
            unnamed.append((pod, pod.ask))
        else:
            named += claims_of(pod, shares)
    fleet.adopt(named)
    if unnamed:
        reserved = frozenset(pod.reserves_group[1] for pod in pods if pod.reserves_group is not None)
        for pod, ask in unnamed:
            _assign(fleet, pod, ask, rules, groups, reserved)
    fleet.adopt(_with_use_at_end(fleet, pods))
    return problems


def adopt_bound_pod(fleet: Fleet, pod: Pod, rules: Rules, claims: tuple[Claim, ...]) -> None:
    """Do what `adopt_pods` does for a pod that holds claims already; `claims` are the ledger's.

    Most are bound to exactly what they were promised a moment ago: then no card has to be counted again.
    """
    told = pod.allocation.gpus if pod.allocation is not None else ()
    held = fleet.ledger.of_pod(pod.uid)
    just_bound = pod.phase is PodPhase.BOUND and pod.started_at is None
    if just_bound and told == _shares_of(held) == _shares_of(claims) and all(map(_is_reserved, held)):
        fleet.pod_bound(pod.uid)
    else:
        adopt_pods(fleet, [pod], rules, {pod.uid: claims})


def _is_reserved(claim: Claim) -> bool:
    return claim.state is ClaimState.RESERVED and claim.started_at is None


def _shares_of(claims: Iterable[Claim]) -> tuple[GpuShare, ...]:
    return tuple([GpuShare(claim.gpu, claim.mib, claim.cores) for claim in claims])


def _with_use_at_end(fleet: Fleet, pods: Iterable[Pod]) -> list[Claim]:
    """Return releasing claims with what the card must have shown when their pods ended.

    Nobody looked then. But where nothing else runs on the card, all that was there was theirs, so that a
    later look at an all but empty card shows the release, processes listed or not.
    """
    marked = []
    releasing = [pod.uid for pod in pods if pod.phase is PodPhase.RELEASING and pod.ended_at is not None]
    for claim in (claim for uid in releasing for claim in fleet.ledger.of_pod(uid)):
        others = (each for each in fleet.ledger.of_card(claim.gpu) if each.ended_at is None)
        alone = not any(each.started_at is not None for each in others)
        if claim.used_at_end is None and alone:
            marked.append(msgspec.structs.replace(claim, used_at_end=Mib(claim.mib + fleet.margin)))
    return marked


def _named_cards(
    fleet: Fleet,
    pod: Pod,
    ask: Ask,
    groups: Mapping[str, str],
    claims: tuple[Claim, ...],
    rules: Rules,
) -> tuple[GpuShare, ...] | None:
    """Return the cards that a pod's evidence names, None where there is no evidence."""
    told = pod.allocation.gpus if pod.allocation is not None else ()
    written = _shares_of(claims) if not told or (claims and not _agree(told, claims)) else ()
    if told and written:
        raise RequestError(
            subject=f"Pod {pod.key}",
            field="allocation",
            value=_words(told),
            problem=f"differs from the GpuLedger of node {pod.node}, which holds {_words(written)};"
            " the node is frozen until they agree",
        )
    shares = told or written
    if not shares and pod.allocation is not None:
        shares = _cards_of_groups(
            fleet, ask, [groups.get(name, name) for name in pod.allocation.groups], rules
        )
    for share in shares:
        gpu = fleet.gpu(share.uuid)
        if gpu is None or gpu.node != pod.node:
            raise RequestError(
                subject=f"Pod {pod.key}",
                field="allocation",
                value=share.uuid,
                problem=f"names a GPU that is not on node {pod.node}; the node is frozen until it is known",
                accepted=_words_of_cards(fleet, pod.node),
            )
    return shares or None


def _agree(told: tuple[GpuShare, ...], claims: tuple[Claim, ...]) -> bool:
    """Whether a pod's annotation and the ledger name the same memory on the same cards, in any order."""
    if len(told) == len(claims) == 1:
        return told[0].uuid == claims[0].gpu and told[0].mib == claims[0].mib
    return {(each.uuid, each.mib) for each in told} == {(each.gpu, each.mib) for each in claims}


def _at_worst(fleet: Fleet, pod: Pod, claims: tuple[Claim, ...]) -> tuple[GpuShare, ...]:
    """Return the most that any piece of evidence says, on cards that are there: doubt is no free memory."""
    most: dict[str, GpuShare] = {}
    told = pod.allocation.gpus if pod.allocation is not None else ()
    for share in (*told, *_shares_of(claims)):
        gpu = fleet.gpu(share.uuid)
        if gpu is not None and gpu.node == pod.node and share.mib > most.get(share.uuid, _NOTHING).mib:
            most[share.uuid] = share
    return tuple(most.values())


def _cards_of_groups(fleet: Fleet, ask: Ask, uuids: list[str], rules: Rules) -> tuple[GpuShare, ...]:
    """Return shares on cards known only through KAI groups; a group nobody reserved stays unnamed."""
    if any(fleet.gpu(uuid) is None for uuid in uuids):
        return ()
    return _sized(fleet, ask, uuids, rules)


def _assign(
    fleet: Fleet, pod: Pod, ask: Ask, rules: Rules, groups: dict[str, str], reserved: frozenset[str]
) -> None:
    """Give a pod nobody assigned the cards of its node with the most left by the books, fitting or not.

    It runs there, so it holds memory somewhere; a card that ends up over-promised shows it as a deficit.
    Pods of one KAI group stay together: the first one decides. A card that a reservation pod holds was not
    given to a pod with devices of its own, unless there are several devices of it.
    """
    node = fleet.node(pod.node or "")
    if node is None or not node.gpus:
        return
    names = pod.allocation.groups if pod.allocation is not None else ()
    here = {gpu.uuid for gpu in node.gpus}
    together = [groups[name] for name in names if groups.get(name) in here]
    taken = reserved if pod.holds_devices else frozenset()
    by_room = sorted(node.gpus, key=lambda gpu: (_is_kept(gpu, taken), _left_on(fleet, gpu), gpu.uuid))
    chosen = together or [gpu.uuid for gpu in by_room[: ask.gpus]]
    groups.update(zip(names, chosen, strict=False))
    fleet.adopt(claims_of(pod, _sized(fleet, ask, chosen, rules)))


def _is_kept(gpu: PhysicalGpu, reserved: frozenset[str]) -> bool:
    return gpu.uuid in reserved and gpu.slots is None


def _left_on(fleet: Fleet, gpu: PhysicalGpu) -> int:
    return -fleet.account(gpu.uuid).free_by_books


def _sized(fleet: Fleet, ask: Ask, uuids: list[str], rules: Rules) -> tuple[GpuShare, ...]:
    sizes = size_on_each_card(fleet.columns, ask.size, unsized_is_whole=rules.unsized_is_whole)
    return tuple(GpuShare(uuid, Mib(int(sizes[fleet.columns.row_of[uuid]])), ask.cores) for uuid in uuids)


def _words(shares: Iterable[GpuShare]) -> str:
    return ", ".join(f"{share.uuid} {share.mib} MiB" for share in shares)


def _words_of_cards(fleet: Fleet, name: str | None) -> str:
    node = fleet.node(name or "")
    return ", ".join(gpu.uuid for gpu in node.gpus) if node is not None and node.gpus else "no GPU at all"
