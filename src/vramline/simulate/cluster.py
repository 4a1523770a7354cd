"""The embedded cluster: nodes, cards, pods and a queue in memory, placed by the same engine as in production.

It stands in for API server, kube-scheduler and kubelets where there are none. Its clock is a function, so
that a snapshot, a story and a living demo all run on it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.decide.adoption import adopt_pods
from vramline.decide.engine import decide
from vramline.decide.host import Rooms, refuse_by_pool, refuse_by_wishes
from vramline.decide.host_scores import host_costs
from vramline.decide.reserve import reservation_of
from vramline.errors import InvariantError, RequestError
from vramline.explain.decision import SealedDecision, explain_decision, explain_hosts, seal_decision
from vramline.explain.lines import NodeLine
from vramline.explain.replay import MOST_CARDS, Case, Question, take_case
from vramline.model.ask import Ask
from vramline.model.claim import Claim
from vramline.model.cluster import BindOutcome
from vramline.model.decision import Decision
from vramline.model.fleet import DEFAULT_MARGIN, Fleet, Released
from vramline.model.host import HostColumns, requests_of
from vramline.model.mix import class_of
from vramline.model.node import Node, NodePool, NodeProblem, ProblemKind
from vramline.model.observation import Observation
from vramline.model.pod import HostNeeds, Pod, PodPhase
from vramline.model.reason import CODE_OF, FITS, REASON_OF, Reason
from vramline.model.rules import Rules, rules_for
from vramline.simulate.outcome import Outcome, Status
from vramline.units import Mib

__all__ = ["EmbeddedCluster"]


class EmbeddedCluster:
    """A cluster without Kubernetes. Satisfies `model.cluster.Cluster`."""

    def __init__(
        self,
        rules: Rules,
        *,
        clock: Callable[[], float],
        margin: Mib = DEFAULT_MARGIN,
        release_grace_s: float = 60.0,
        pool: NodePool | None = None,
    ) -> None:
        self.rules = rules
        self.fleet = Fleet(margin)
        self.hosts = self.fleet.hosts = HostColumns()
        self.release_grace_s = release_grace_s
        self.on_decision: Callable[[Decision], None] = _look_away
        """Called with every decision of `place` while the fleet still is as the decision saw it."""
        self.takes_cases = False
        """Whether outcomes of `place` carry what they were decided on."""
        self.pool = pool
        """None: all nodes."""
        self.explains = True
        """Whether decisions are explained. A benchmark leaves it out to know what it costs."""
        self._clock = clock
        self._pods: dict[str, Pod] = {}
        self._wishes: dict[bytes, npt.NDArray[np.int8]] = {}
        """By what pods wish of a host; emptied when a node changes."""
        self._rooms = Rooms()
        self._refusals: dict[Hashable, SealedDecision] = {}
        """Of one moment, by what was asked."""
        self._refused_at: tuple[int, float] | None = None

    # ── state ────────────────────────────────────────────────────────────────────────────────────

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Every pod by UID."""
        return self._pods

    def now(self) -> float:
        """The cluster's time."""
        return self._clock()

    def rules_for(self, ask: Ask | None) -> Rules:
        """How to decide about this ask."""
        return self.rules if ask is None else rules_for(self.rules, ask)

    def pod_at(self, uid: str, version: str) -> None:
        """Pods here have no versions."""

    def candidates_for(self, pod: Pod) -> npt.NDArray[np.int8]:
        """By node number FITS or why the host is out of the question."""
        wishes = self._wishes_of(pod.host, wants_gpu=pod.ask is not None)
        codes = self._rooms.refuse(wishes, self.hosts, pod.host)
        return codes if pod.ask is None else refuse_by_pool(codes, self.fleet, pod.host)

    def view_of(self, node: str, pod: Pod) -> Fleet:
        """One node; nothing is kept for anybody here."""
        del pod
        return self.fleet.only(node)

    def reserved_on(self, pod: Pod) -> list[str]:
        """Nothing is reserved in advance here."""
        del pod
        return []

    def leads(self) -> bool:
        """There is nobody else."""
        return True

    def disagreements(self) -> list[str]:
        """The books are in one place here; there is nothing they could disagree with."""
        return []

    # ── what happens ─────────────────────────────────────────────────────────────────────────────

    def set_node(self, node: Node, observations: Mapping[str, Observation] | None = None) -> None:
        """A node joined, or changed."""
        self.fleet.set_node(node)
        self._wishes.clear()
        number = self.fleet.node_number(node.name)
        if number is None:
            raise InvariantError(f"node {node.name} has no number")
        self.hosts.set_node(number, node)
        for pod in self._pods.values():
            if pod.node == node.name and pod.phase is not PodPhase.FINISHED:
                self.hosts.take(number, pod.host)
        self._count_requests(node.name)
        for uuid, observation in (observations or {}).items():
            self.fleet.observe(uuid, observation)

    def remove_node(self, name: str) -> None:
        """A node left."""
        self.fleet.remove_node(name)
        self._wishes.clear()

    def adopt(
        self, pods: Iterable[Pod], ledger: Mapping[str, tuple[Claim, ...]] | None = None
    ) -> list[RequestError]:
        """Take in pods as a snapshot shows them; return what could not be believed of those on nodes."""
        pods = tuple(pods)
        for pod in pods:
            self._pods[pod.uid] = pod
            self._see(pod)
            self._move_host(pod, taken=True)
        problems = adopt_pods(self.fleet, pods, self.rules, ledger or {})
        self.settle()
        return problems

    def add_pod(self, pod: Pod) -> None:
        """A pod was created."""
        self._pods[pod.uid] = pod
        self._see(pod)

    def place(self, pod_uid: str, *, most_nodes: int | None = 20, why: bool = True) -> Outcome:
        """Decide about one pending pod and, where it fits, claim and bind in the same step."""
        pod = self._pods[pod_uid]
        if pod.ask is None:
            return self._place_without_gpu(pod, most_nodes=most_nodes)
        self._forget_promise(pod_uid)
        candidates = self.candidates_for(pod)
        rules = self.rules_for(pod.ask)
        decision = decide(self.fleet, pod.ask, rules, now=self.now(), candidates=candidates)
        sealed = None
        if self.explains:
            sealed = self._seal(decision, rules, candidates, most_nodes=most_nodes, why=why)
        case = self._take_case(decision, rules, candidates, most_nodes=most_nodes, why=why)
        self.on_decision(decision)
        if decision.placement is None:
            return Outcome(
                pod=pod,
                status=Status.PENDING,
                notes=pod.notes,
                decision=decision,
                sealed=sealed,
                case=case,
            )
        rows = [self.fleet.columns.row_of[share.uuid] for share in decision.placement.gpus]
        self._commit(pod, decision)
        return Outcome(
            pod=pod,
            status=Status.BOUND,
            node=decision.placement.node,
            gpus=decision.placement.gpus,
            notes=pod.notes,
            basis="observed" if all(decision.observed[row] for row in rows) else "books",
            decision=decision,
            sealed=sealed,
            case=case,
        )

    async def meet(self, namespace: str, name: str) -> None:
        """Nothing: every pod of this cluster is known."""
        del namespace, name

    async def recall(self, pod_uid: str) -> None:
        """Nothing: here a claim and its binding are one step."""
        del pod_uid

    async def bind(self, pod_uid: str, node: str) -> BindOutcome:
        """Decide the cards on `node` once more, claim them, and bind."""
        pod = self._pods.get(pod_uid)
        number = self.fleet.node_number(node)
        if pod is None or number is None:
            return BindOutcome(f"no pod {pod_uid}" if pod is None else f"no node {node}")
        if pod.phase is not PodPhase.PENDING:
            return BindOutcome(f"{pod.key} is on {pod.node} already")
        candidates = self.candidates_for(pod)
        if pod.ask is None:
            if candidates[number] != FITS:
                return BindOutcome(f"{node} refuses: {REASON_OF[int(candidates[number])]}")
            self._settle_on(pod, node)
            return BindOutcome()
        only = np.where(np.arange(len(candidates)) == number, candidates, _elsewhere(candidates))
        self._forget_promise(pod_uid)
        rules = self.rules_for(pod.ask)
        decision = decide(self.fleet, pod.ask, rules, now=self.now(), candidates=only)
        if decision.placement is None:
            return BindOutcome(explain_decision(self.fleet, decision, rules, why=False).message)
        self._commit(pod, decision)
        return BindOutcome()

    def start_pod(self, pod_uid: str) -> None:
        """Its containers run."""
        self._change(pod_uid, phase=PodPhase.RUNNING, started_at=self.now())
        self.fleet.pod_started(pod_uid, at=self.now())

    def delete_pod(self, pod_uid: str) -> None:
        """Its deletion was asked for."""
        if self._pods[pod_uid].node is None:
            del self._pods[pod_uid]
            return
        self._change(pod_uid, phase=PodPhase.RELEASING)
        self.fleet.pod_deleted(pod_uid)

    def end_pod(self, pod_uid: str) -> None:
        """Its containers have ended and its object is gone. Its memory stays held until that is proved."""
        pod = self._pods.pop(pod_uid)
        self._move_host(pod, taken=False)
        self.fleet.pod_ended(pod_uid, at=self.now())

    def observe(self, uuid: str, observation: Observation) -> None:
        """An agent looked at a card."""
        self.fleet.observe(uuid, observation)

    def freeze(self, node: str, why: str) -> None:
        """Hand out no GPU of a node any more."""
        self.fleet.freeze(node, NodeProblem(ProblemKind.FROZEN, why))

    def settle(self) -> list[Released]:
        """Let go of memory that is proved free."""
        return self.fleet.settle(now=self.now(), grace_s=self.release_grace_s, max_age_s=self.rules.max_age_s)

    # ── inside ───────────────────────────────────────────────────────────────────────────────────

    def _see(self, pod: Pod) -> None:
        """Remember what pods ask for, for policies that think ahead."""
        if pod.ask is not None:
            self.fleet.mix.see(class_of(pod.ask))

    def _wishes_of(self, needs: HostNeeds, *, wants_gpu: bool) -> npt.NDArray[np.int8]:
        key = msgspec.msgpack.encode(
            (needs.node_selector, needs.affinity, needs.affinity_names, needs.tolerations, wants_gpu)
        )
        codes = self._wishes.get(key)
        if codes is None:
            codes = self._wishes[key] = refuse_by_wishes(self.fleet, needs)
            if wants_gpu and self.pool is not None:
                self._refuse_outside_pool(codes, self.pool)
        return codes

    def _refuse_outside_pool(self, codes: npt.NDArray[np.int8], pool: NodePool) -> None:
        for node in self.fleet.nodes:
            if not pool.holds(node):
                codes[self.fleet.node_number(node.name)] = CODE_OF[Reason.NOT_A_CANDIDATE]

    def _seal(
        self,
        decision: Decision,
        rules: Rules,
        candidates: npt.NDArray[np.int8],
        *,
        most_nodes: int | None,
        why: bool,
    ) -> SealedDecision:
        """Seal a decision; equal asks that fail one after the other share one explanation."""
        if decision.placement is not None:
            most_nodes = 0 if most_nodes else None
            return seal_decision(self.fleet, decision, rules, most_nodes=most_nodes, why=False)
        moment = (decision.generation, decision.at)
        if self._refused_at != moment:
            self._refused_at, self._refusals = moment, {}
        _, _, *wishes = msgspec.structs.astuple(decision.ask)  # all but whose they are
        key = (*wishes, rules, candidates.tobytes(), most_nodes, why)
        sealed = self._refusals.get(key)
        if sealed is None:
            sealed = self._refusals[key] = seal_decision(
                self.fleet, decision, rules, most_nodes=most_nodes, why=why, candidates=candidates
            )
        return sealed

    def _take_case(
        self,
        decision: Decision,
        rules: Rules,
        candidates: npt.NDArray[np.int8],
        *,
        most_nodes: int | None,
        why: bool,
    ) -> Case | None:
        """Take down what a decision was made on, if anybody wants that; as `_explain` explains it."""
        if not self.takes_cases or len(self.fleet.columns.row_of) > MOST_CARDS:
            return None
        if decision.placement is not None:
            most_nodes, why = 0 if most_nodes else None, False
        question = Question(ask=decision.ask, rules=rules, at=decision.at, most_nodes=most_nodes, why=why)
        return take_case(self.fleet, question, candidates)

    def _place_without_gpu(self, pod: Pod, *, most_nodes: int | None) -> Outcome:
        """Give a pod that wants no GPU CPU and memory, on a node without GPUs where there is one."""
        codes = self.candidates_for(pod)
        fitting = np.flatnonzero(codes == FITS)
        if not len(fitting):
            reason, message = explain_hosts(self.fleet, codes)
            return Outcome(
                pod=pod,
                status=Status.PENDING,
                refusal=reason,
                said=message,
                notes=pod.notes,
                hosts=self._host_lines(codes)[:most_nodes],
            )
        has_gpus = self.fleet.node_codes().take(fitting) == FITS
        if not has_gpus.all():
            fitting = fitting[~has_gpus]
        costs = host_costs(self.fleet, self.rules, pod.host.cpu_milli, now=self.now()).take(fitting)
        fitting = fitting[costs == costs.min()]
        fitting = fitting[[self.fleet.rank().take(fitting).argmin()]]
        node = self.fleet.name_of(int(fitting[0]))
        hosts = self._host_lines(codes) if most_nodes is None else ()
        self._settle_on(pod, node)
        return Outcome(pod=pod, status=Status.BOUND, node=node, notes=pod.notes, hosts=hosts)

    def _host_lines(self, codes: npt.NDArray[np.int8]) -> tuple[NodeLine, ...]:
        """Say of every node, by rank, why it takes or refuses a pod without GPUs."""
        numbers = self.fleet.live_numbers()
        lines = []
        for number in numbers[np.argsort(self.fleet.rank()[numbers])]:
            reason = REASON_OF.get(int(codes[number]))
            name = self.fleet.name_of(int(number))
            lines.append(NodeLine(node=name, fits=reason is None, reason=reason, gpus=[], score=None))
        return tuple(lines)

    def _forget_promise(self, pod_uid: str) -> None:
        """Take back what an attempt that never bound has left; without one the fleet stays as it is."""
        if self.fleet.ledger.of_pod(pod_uid):
            self.fleet.remove_claims(pod_uid)

    def _commit(self, pod: Pod, decision: Decision) -> None:
        if decision.placement is None:
            raise InvariantError(f"{pod.key} was not placed; there is nothing to commit")
        self.fleet.reserve(reservation_of(decision))
        self.fleet.pod_bound(pod.uid)
        self._settle_on(pod, decision.placement.node)

    def _settle_on(self, pod: Pod, node: str) -> None:
        self._change(pod.uid, node=node, phase=PodPhase.BOUND)
        self._move_host(self._pods[pod.uid], taken=True)

    def _move_host(self, pod: Pod, *, taken: bool) -> None:
        number = self.fleet.node_number(pod.node or "")
        if number is None or pod.phase is PodPhase.FINISHED:
            return
        if taken:
            self.hosts.take(number, pod.host)
        else:
            self.hosts.give_back(number, pod.host)
        self._count_requests(pod.node or "")

    def _count_requests(self, name: str) -> None:
        """Where the GPU takes from the machine's memory, say what pods have requested of it."""
        node = self.fleet.node(name)
        if node is not None and node.is_unified:
            there = (pod for pod in self._pods.values() if pod.node == name)
            holding = ((pod.uid, pod.host) for pod in there if pod.phase is not PodPhase.FINISHED)
            self.fleet.set_requests(name, requests_of(holding))

    def _change(self, pod_uid: str, **changes: object) -> None:
        self._pods[pod_uid] = msgspec.structs.replace(self._pods[pod_uid], **changes)


def _elsewhere(codes: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    return np.full_like(codes, CODE_OF[Reason.NOT_A_CANDIDATE])


def _look_away(_decision: Decision) -> None:
    """Nobody wants to see decisions."""
