"""The commit protocol: claim in the node's ledger, then bind the pod, each under a precondition.

    look → decide → hold in memory → (1) write the claim → (2) write the binding → the watch confirms

A crash after 1 leaves a claim whose pod stays unbound: it is taken back after a grace period. A crash after 2
leaves claim and annotation in agreement. Nothing is retried blindly: a conflict means planning anew, a lost
answer means reading first.

A binding whose answer was lost may still land, even that of a leader who was deposed while he slept. Two
rules make that harmless:

- A binding carries a version of the pod that its sender read before he last saw his own claim stored.
- A claim is taken back in three steps, and its memory stays held until the last: take it over (its epoch
  becomes the new leader's, so its author no longer finds his own), give the pod a new version (so no
  binding with an older one can land), and, if the pod that comes back is unbound, remove it.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import msgspec

from vramline.decide.engine import decide
from vramline.decide.reserve import reservation_of
from vramline.errors import RequestError
from vramline.explain.decision import explain_decision
from vramline.model.ask import RealtimeMode
from vramline.model.cluster import BindOutcome
from vramline.model.decision import Decision, Placement
from vramline.model.fleet import Fleet
from vramline.model.holding import CardHolder
from vramline.model.pod import GpuShare, Pod
from vramline.scheduler.eyes import Eyes
from vramline.scheduler.following_cards import Planned, find_cards
from vramline.scheduler.hami_lock import HamiLock
from vramline.scheduler.hami_nodes import annotations_for_hami, asks_hami, why_hami_waits
from vramline.scheduler.ledger_desk import LedgerDesk, Lost
from vramline.scheduler.live import LiveState
from vramline.scheduler.one_node import decide_on_node, open_to
from vramline.scheduler.store import Binding, Done, Refused, Store, Unclear, Written
from vramline.scheduler.telling import Telling
from vramline.wire import keys
from vramline.wire.allocation import AllocationRecord, encode_allocation
from vramline.wire.kubernetes import PodObject
from vramline.wire.ledger_v1alpha1 import GpuLedger
from vramline.wire.pods import read_pod

__all__ = ["Committer"]

_LOOKS = 4
"""How often cards are looked at, because those chosen before turned out to be taken."""

_PLANS = 3
"""How often a bind is planned anew after somebody else wrote first."""


class Committer:
    """Binds pods for one leader."""

    def __init__(
        self,
        live: LiveState,
        store: Store,
        epoch: Callable[[], int | None],
        *,
        eyes: Eyes | None = None,
        holder: CardHolder | None = None,
        apart_s: float = 0.05,
    ) -> None:
        self._live = live
        self._eyes = eyes or Eyes(live)
        """Looks at cards where an agent's stream is up; without one, a bind waits for nobody."""
        self.holder = holder
        """Keeps cards out of kubelet's hands; None: nobody needs to."""
        self._store = store
        self._epoch = epoch
        self.desk = LedgerDesk(live, store, epoch, apart_s=apart_s)
        self.telling = Telling()
        """How containers are told their cards."""
        self.hami_lock: HamiLock | None = None
        """Takes HAMi's lock on nodes that its device plugin runs; None: nobody does."""

    def term(self) -> int | None:
        """The number of this leader's term; None: it does not lead now."""
        return self._epoch()

    def leads(self) -> bool:
        """Whether anything may be written now."""
        return self._epoch() is not None

    async def bind(self, pod_uid: str, node: str) -> BindOutcome:
        """Claim cards of `node` for a pod and bind it, or say why not: both are stored, or the claim goes."""
        begun: list[tuple[Pod, Placement]] = []
        outcome = await self._attempt(pod_uid, node, begun)
        if self.hami_lock is not None:
            await self.hami_lock.settle(pod_uid, bound=not outcome.refused)
        if begun and self.holder is not None and self.leads():
            await self.holder.finish(*begun[-1], outcome.refused)
        return outcome

    async def _attempt(self, pod_uid: str, node: str, begun: list[tuple[Pod, Placement]]) -> BindOutcome:
        """Try it; what is to be recorded as begun is added to `begun`."""
        lost = Lost("", retry=True)
        for _ in range(_PLANS):
            unsteady = await self._prepare(pod_uid, node)
            refusal = self._refusal(pod_uid, node) or unsteady
            if refusal:
                return BindOutcome(refusal)
            pod = self._live.pods[pod_uid]
            if self._live.nodes_promised_to(pod_uid):
                continue  # it could not be taken back
            planned, uuids = self._plan(pod, node), dict[str, str]()
            if isinstance(planned, BindOutcome):
                return planned
            self._live.hold(planned[1])
            try:
                if self.holder is not None and self.holder.holds_for(pod, node):
                    begun.append((pod, planned[0]))
                    found = await find_cards(self._live, self.holder, pod, planned)
                    if isinstance(found, str):
                        return BindOutcome(found)
                    planned, uuids = found
                version, taken = self._live.version_of(pod_uid), self._live.taken_over_by(pod_uid)
                written = await self.desk.write(node, add=planned[1].claims, remove=taken)
                if isinstance(written, Written) and self._has_lost_hold(pod, planned[0]):
                    written = await self._withdraw(pod, node)
                if isinstance(written, Written):
                    begun.append((pod, planned[0]))
                    told = self._tell(pod, planned[0], uuids)
                    return await self._bind(_binding(pod, planned[0], version, written.ledger, told), pod)
            finally:
                self._live.end_hold(pod_uid)
            lost = written
            if not lost.retry:
                break
        return BindOutcome(
            f"the ledger of {node} was not written: {lost.detail or 'an earlier promise stands'}"
        )

    def _has_lost_hold(self, pod: Pod, placement: Placement) -> bool:
        """Whether a card that was held is so no more: another leader ended what nobody had claimed."""
        if self.holder is None or not self.holder.holds_for(pod, placement.node):
            return False
        return not {share.uuid for share in placement.gpus} <= self.holder.held_on(placement.node).keys()

    async def _withdraw(self, pod: Pod, node: str) -> Lost:
        """Take back a claim for which no binding was sent."""
        await self.desk.write(node, remove=[pod.uid])
        return Lost(f"cards of {node} are no longer held", retry=True)

    def _tell(self, pod: Pod, placement: Placement, uuids: dict[str, str]) -> dict[str, str]:
        """Return what a binding tells containers and other readers."""
        told = annotations_for_hami(self._live, pod, placement)
        return told | self.telling.about(self._live.fleet, pod, placement, uuids)

    async def meet(self, namespace: str, name: str) -> None:
        """Read a pod from the API server, if it is there."""
        stored = await self._store.read_pod(namespace, name)
        if isinstance(stored, PodObject):
            self._live.set_pod(stored)

    async def recall(self, pod_uid: str) -> None:
        """Take back promises to a pod whose binding nobody is writing: it is being scheduled anew."""
        if not self._live.nodes_promised_to(pod_uid) or self._epoch() is None:
            return
        pod = self._live.pods.get(pod_uid)
        if pod is not None and pod.node is None and not self._live.is_held(pod_uid):
            await self._take_back(pod)

    async def reap(self) -> None:
        """Remove stored claims that are over: memory proved free, and promises never kept."""
        if self._epoch() is None:
            return
        self._live.settle()
        for node, pods in self._live.overdue().items():
            await self.desk.write(node, remove=pods)
        for pod in self._live.promises_not_kept():
            await self._take_back(pod)

    async def _prepare(self, pod_uid: str, node: str) -> str:
        """Take back an earlier promise to the pod, and look at the cards it would get; say what is wrong.

        Others may act meanwhile, so everything is judged anew afterwards; from then on nothing is awaited
        until the cards are held.
        """
        if self._refusal(pod_uid, node):
            return ""
        if self._live.nodes_promised_to(pod_uid):
            await self._take_back(self._live.pods[pod_uid])
        unsteady = await self._look_ahead(pod_uid, node) if self._eyes.can_look(node) else ""
        return unsteady or await self._lock(pod_uid, node)

    async def _lock(self, pod_uid: str, node: str) -> str:
        """Take HAMi's lock where its device plugin is to give the pod its devices; say why it is not had."""
        if self.hami_lock is None or self._refusal(pod_uid, node):
            return ""
        pod = self._live.pods[pod_uid]
        return await self.hami_lock.take(pod, node) if asks_hami(self._live, pod, node) else ""

    async def _look_ahead(self, pod_uid: str, node: str) -> str:
        """Have the node's agent look at the cards that the pod would get, until one look shows them all."""
        looked: set[str] = set()
        for _ in range(_LOOKS):
            if self._refusal(pod_uid, node):
                return ""
            pod = self._live.pods[pod_uid]
            _, decision = self._decide_on(pod, node)
            if decision.placement is None or decision.mode is RealtimeMode.DISABLED:
                return ""
            chosen = {share.uuid for share in decision.placement.gpus}
            if chosen <= looked:
                return ""
            if looked:
                self._eyes.checks.other_cards(decision.mode)
            if not await self._eyes.look(node, chosen):
                return ""
            looked = chosen
        return self._still_changing(pod_uid, node, looked)

    def _still_changing(self, pod_uid: str, node: str, looked: set[str]) -> str:
        """Say that the cards of a node change faster than they can be looked at, if they do."""
        if self._refusal(pod_uid, node):
            return ""
        pod = self._live.pods[pod_uid]
        _, decision = self._decide_on(pod, node)
        if decision.placement is None or decision.mode is not RealtimeMode.STRICT:
            return ""
        if {share.uuid for share in decision.placement.gpus} <= looked:
            return ""
        return f"memory on {node} changes faster than it can be looked at; {pod.key} is tried again"

    def _refusal(self, pod_uid: str, node: str) -> str:
        pod = self._live.pods.get(pod_uid)
        if self._epoch() is None:
            return "this replica does not lead"
        if pod is None:
            return f"no pod with UID {pod_uid}"
        if pod.node is not None:
            return f"{pod.key} is on {pod.node} already"
        if self._live.is_held(pod_uid):
            return f"{pod.key} is being bound"
        if self._live.fleet.node(node) is None:
            return f"no node {node}"
        return self._why_kubelet_decides(pod, node) or why_hami_waits(
            self._live, pod, node, locks=self.hami_lock is not None
        )

    def _why_kubelet_decides(self, pod: Pod, node: str) -> str:
        """Say that nobody but kubelet knows which cards the pod would get; empty: we do."""
        if self.holder is None or not self.holder.leaves_choice(pod, node):
            return ""
        return (
            f"{pod.key} asks kubelet for devices itself, and kubelet on {node} would choose them;"
            " created anew it passes the webhook, which changes that"
        )

    def _plan(self, pod: Pod, node: str) -> Planned | BindOutcome:
        """Choose cards of a node, or say why none will do."""
        fleet, decision = self._decide_on(pod, node)
        if decision.placement is None:
            fleet = self._live.view_of(node, pod)
            rules = self._live.rules_for(pod.ask)
            decision = decide(
                fleet, decision.ask, rules, now=decision.at, candidates=open_to(fleet, node, pod)
            )
            self._eyes.checks.refused(fleet, decision)
            return BindOutcome(explain_decision(fleet, decision, rules, why=False).message)
        self._eyes.checks.placed(fleet, decision)
        return decision.placement, reservation_of(decision, epoch=self._epoch() or 0)

    def _decide_on(self, pod: Pod, node: str) -> tuple[Fleet, Decision]:
        if pod.ask is None:
            raise RequestError(subject=f"Pod {pod.key}", problem="asks for no GPU; nothing is to be claimed")
        return decide_on_node(self._live, pod, pod.ask, node)

    async def _bind(self, binding: Binding, pod: Pod) -> BindOutcome:
        """Write the binding. Its version of the pod was read before the claim was stored."""
        for _ in range(_PLANS):
            answer = await self._store.bind(binding)
            if isinstance(answer, Done):
                return BindOutcome()
            if isinstance(answer, Refused):
                return await self._give_up(pod, binding, answer.detail)
            stored = await self._store.read_pod(pod.namespace, pod.name)
            if isinstance(stored, Unclear) or isinstance(answer, Unclear):
                return await self._give_up(pod, binding, answer.detail)
            if (
                stored is None
                or not _is_still(stored, pod)
                or not await self._claim_stands(pod, binding.node)
            ):
                return await self._give_up(pod, binding, answer.detail)
            # Only the version was old (somebody patched the status), and the claim is there still.
            binding = msgspec.structs.replace(
                binding, resource_version=stored.metadata.resource_version or ""
            )
        return await self._give_up(pod, binding, f"{pod.key} changed under every attempt")

    async def _claim_stands(self, pod: Pod, node: str) -> bool:
        """Whether our claim is in the ledger now, after the pod was read."""
        stored = await self._store.read_ledger(node)
        if stored is None or isinstance(stored, Unclear):
            return False
        self._live.set_ledger(stored)
        return any(claim.pod_uid == pod.uid and claim.epoch == self._epoch() for claim in stored.claims)

    async def _give_up(self, pod: Pod, binding: Binding, why: str) -> BindOutcome:
        """Take back our own claim: the pod first, so that our binding cannot land afterwards."""
        fenced = await self._store.fence_pod(pod.namespace, pod.name, pod.uid)
        if isinstance(fenced, Unclear):
            return BindOutcome(f"{why}; {fenced.detail}: not known yet whether {pod.key} is bound")
        if fenced is not None:
            self._live.set_pod(fenced)
            if _allocation_of(fenced) == binding.annotations[keys.ALLOCATION]:
                return BindOutcome()
        else:
            self._live.drop_pod(pod.uid)
        await self.desk.write(binding.node, remove=[pod.uid])
        return BindOutcome(why)

    async def _take_back(self, pod: Pod) -> None:
        """Take back promises to an unbound pod that somebody, perhaps another leader, did not keep."""
        nodes, left = [], dict[str, Placement]()
        for node in self._live.nodes_promised_to(pod.uid):
            left[node] = self._left_by_others(pod, node)
            written = await self.desk.write(node, take_over=[pod.uid])
            if isinstance(written, Lost):
                return
            if any(claim.pod_uid == pod.uid for claim in written.ledger.claims):
                nodes.append(node)
        fenced = await self._store.fence_pod(pod.namespace, pod.name, pod.uid)
        if isinstance(fenced, Unclear) or self._live.is_held(pod.uid):
            return
        if fenced is None:
            self._live.drop_pod(pod.uid)
            return
        self._live.set_pod(fenced)
        bound_to = fenced.spec.node_name if fenced.spec is not None else None
        for node in nodes:
            if node != bound_to:
                async with self._recorded(pod, left[node]):
                    await self.desk.write(node, remove=[pod.uid])

    def _recorded(self, pod: Pod, left: Placement) -> AbstractAsyncContextManager[None]:
        """Have it recorded that what an earlier leader left of a bind is taken back, where binds are."""
        if self.holder is None or not left.gpus or not self.holder.holds_for(pod, left.node):
            return nullcontext()
        return self.holder.taking_back(pod, left)

    def _left_by_others(self, pod: Pod, node: str) -> Placement:
        """Return what an earlier leader promised a pod; what became of own promises is recorded."""
        claims = (claim for claim in self._live.ledger_of(node).claims if claim.pod_uid == pod.uid)
        others = (claim for claim in claims if claim.epoch != self._epoch())
        return Placement(
            node=node, gpus=tuple(GpuShare(claim.gpu, claim.mib, claim.cores) for claim in others)
        )


def _binding(
    pod: Pod, placement: Placement, version: str, ledger: GpuLedger, told: dict[str, str]
) -> Binding:
    """Return a pod's way to its node and cards; `told` is for its containers and for other readers."""
    record = AllocationRecord(
        node=placement.node, gpus=placement.gpus, ledger_version=int(ledger.resource_version or 0)
    )
    return Binding(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        resource_version=version,
        node=placement.node,
        annotations={**told, keys.ALLOCATION: encode_allocation(record)},
    )


def _allocation_of(stored: PodObject) -> str | None:
    return (stored.metadata.annotations or {}).get(keys.ALLOCATION)


def _is_still(stored: PodObject, pod: Pod) -> bool:
    """Whether the pod is the same pod, unbound, not being deleted, and asks for the same."""
    if stored.metadata.uid != pod.uid or stored.metadata.deletion_timestamp is not None:
        return False
    try:
        fresh = read_pod(stored)
    except RequestError:
        return False
    return fresh.node is None and fresh.ask == pod.ask
