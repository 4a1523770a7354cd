"""Before a pod uses a card, the card is taken out of kubelet's hands.

    BindRequest ──▶ reservation pod ──▶ the card that kubelet gave ──▶ claim ──▶ Binding ──▶ BindRequest
      Pending         if there is none       another one: the plan moves  (ledger)             Succeeded

Where all cards are held already there is nothing to wait for, and the claim in the ledger is all the intent
that a successor needs: the BindRequest is then written once, with its end. A successor that takes such a
claim back records the attempt as failed first.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vramline.binder.books import situation_of
from vramline.binder.cover import Situation, held_cards, is_sliced, under_way, uuids_of
from vramline.binder.parts import Parts
from vramline.model.decision import Placement
from vramline.model.holding import Changed, Elsewhere, Held, NotHeld
from vramline.model.node import Node
from vramline.model.pod import Pod, PodPhase
from vramline.wire.reservation_pod import Reservation

__all__ = ["Binder", "is_held_by_reservations", "is_waiting"]

_TAKEN_BACK = "the leader that began it is gone; its claim was taken back"
_REFUSED_FOR_S = 30.0
"""For so long no new card is wanted of a kubelet that had none; what changes there ends it earlier."""


class Binder:
    """Holds cards for the pods that a leader binds. Satisfies `model.holding.CardHolder`."""

    def __init__(self, parts: Parts, *, within_s: float) -> None:
        self._books, self._holds, self._maker = parts.books, parts.holds, parts.maker
        self._requests, self._clock = parts.requests, parts.clock
        self._within_s = within_s
        self._refused: dict[str, tuple[float, frozenset[str], str]] = {}
        """By node: until when, among which pods, and with which words kubelet had no device."""

    def holds_for(self, pod: Pod, node: str) -> bool:
        """Whether the cards of this pod must be held: NVIDIA's plugin offers them, and not to this pod."""
        found = self._books.fleet.node(node)
        return found is not None and is_held_by_reservations(found) and not pod.holds_devices

    def leaves_choice(self, pod: Pod, node: str) -> bool:
        """Whether kubelet would give this pod devices, and has others to give than those it was told."""
        found = self._books.fleet.node(node)
        if found is None or pod.ask is None or not pod.holds_devices or not is_held_by_reservations(found):
            return False
        cards = [gpu for gpu in found.gpus if not gpu.mig]
        return len(cards) > 1 and (is_sliced(found) or pod.ask.gpus < len(cards))

    def deadline(self) -> float:
        """Return until when a bind that begins now may take."""
        return self._clock() + self._within_s

    def held_on(self, node: str) -> dict[str, str]:
        """Return the cards of a node that are held now."""
        situation = self._look(node)
        return {} if situation is None else uuids_of(held_cards(situation))

    def barred_for(self, pod: Pod) -> list[str]:
        """Return where kubelet had no device a moment ago."""
        return [name for name in self._refused if self.holds_for(pod, name) and not self._is_over(name)]

    def end_bars(self) -> list[str]:
        """Forget what is over, and return the nodes whose kubelet may have a device again."""
        over = [name for name in self._refused if self._is_over(name)]
        for name in over:
            del self._refused[name]
        return over

    async def hold(
        self, pod: Pod, placement: Placement, *, until: float
    ) -> Held | Elsewhere | Changed | NotHeld:
        """Have the cards held; see `CardHolder`."""
        wanted = [share.uuid for share in placement.gpus]
        situation = self._look(placement.node)
        if situation is None:
            return NotHeld(f"node {placement.node} is gone")
        if (answer := _held(situation, wanted)) is not None:
            return answer
        seen = held_cards(situation).keys()
        if problem := await self._requests.open(pod, placement):
            return NotHeld(problem)
        async with self._maker.lock(placement.node):
            if self.held_on(placement.node).keys() - seen:
                return Changed()
            if (trouble := await self._make_missing(placement.node, wanted)) is not None:
                return trouble
        return await self._await_cards(pod, placement.node, wanted, until)

    async def finish(self, pod: Pod, placement: Placement, refused: str) -> None:
        """Record how the bind ended."""
        await self._requests.close(pod, placement, refused)

    @asynccontextmanager
    async def taking_back(self, pod: Pod, placement: Placement) -> AsyncIterator[None]:
        """Record a bind that an earlier leader began: as pending while its claim is there, then as failed.

        Whoever is killed in between leaves an attempt that has been counted, and is not counted again.
        """
        with self._requests.ending(pod):
            attempts = await self._requests.count(pod, placement)
            yield
            if not self._books.fleet.ledger.of_pod(pod.uid):
                await self._requests.end_attempt(pod, attempts, _TAKEN_BACK)

    def _look(self, name: str) -> Situation | None:
        node = self._books.fleet.node(name)
        return None if node is None else situation_of(self._books, self._holds, node)

    async def _make_missing(self, name: str, wanted: list[str]) -> Elsewhere | NotHeld | None:
        """Make a reservation for each card that has none; one that is on its way is not made twice."""
        for card in wanted:
            situation = self._look(name)
            if situation is None:
                return NotHeld(f"node {name} is gone")
            if why := self._refusal(situation):
                return Elsewhere(uuids_of(held_cards(situation)), final=why)
            on_their_way = {each.planned for each in under_way(situation)}
            if card in {*held_cards(situation), *on_their_way}:
                continue
            if problem := await self._maker.make(situation, card):
                return NotHeld(problem)
        return None

    async def _await_cards(
        self, pod: Pod, name: str, wanted: list[str], until: float
    ) -> Held | Elsewhere | NotHeld:
        """Wait until kubelet has said what it gave."""
        while True:
            situation = self._look(name)
            if situation is None:
                return NotHeld(f"node {name} is gone")
            if (answer := _held(situation, wanted)) is not None:
                return answer
            if not is_waiting(self._books.pods.get(pod.uid)):
                return NotHeld(f"{pod.key} is gone")
            if not under_way(situation):
                return self._given(situation, wanted)
            if (left_s := until - self._clock()) <= 0:
                return NotHeld(
                    f"kubelet on {name} has not told within {self._within_s:g} s which card it gave to"
                    f" reservation pod {under_way(situation)[0].name}"
                )
            await self._holds.change(left_s)

    def _given(self, situation: Situation, wanted: list[str]) -> Elsewhere | NotHeld:
        """Say what is held instead of what was wanted."""
        mine = [each for each in situation.reservations if each.planned in wanted and not each.ending]
        # An older one that was made for the same card, and that got another, says nothing about this try.
        last = {each.planned: each for each in sorted(mine, key=_age)}
        refused = next((each for each in last.values() if each.failure), None)
        if refused is not None:
            self._note_refusal(situation, refused)
            why = f"kubelet on {situation.node.name} gave no card to {refused.name}: {refused.failure}"
            return Elsewhere(uuids_of(held_cards(situation)), final=why)
        stranger = next((each for each in mine if each.card and not _is_known(situation, each.card)), None)
        if stranger is not None:
            return NotHeld(f"kubelet on {situation.node.name} gave {stranger.card}, which nobody reports")
        return Elsewhere(uuids_of(held_cards(situation)))

    def _note_refusal(self, situation: Situation, refused: Reservation) -> None:
        pods = frozenset(pod.uid for pod in self._books.pods_on(situation.node.name))
        until = self._clock() + _REFUSED_FOR_S
        self._refused[situation.node.name] = until, pods, refused.failure

    def _refusal(self, situation: Situation) -> str:
        """Say that kubelet had no device a moment ago, and that nobody has left since."""
        name = situation.node.name
        if name not in self._refused:
            return ""
        _, _, why = self._refused[name]
        if self._is_over(name):
            return ""
        return f"kubelet on {name} has no device for another card: {why}"

    def _is_over(self, name: str) -> bool:
        """Whether kubelet may have a device again: some time has passed, or somebody left."""
        until, pods, _ = self._refused[name]
        return self._clock() >= until or bool(pods - {pod.uid for pod in self._books.pods_on(name)})


def is_held_by_reservations(node: Node) -> bool:
    """Whether kubelet hands out the cards of a node by a plugin that knows nothing of us."""
    return bool(node.advertised) and not node.has_hami and any(not gpu.mig for gpu in node.gpus)


def is_waiting(pod: Pod | None) -> bool:
    """Whether a pod is there and on no node."""
    return pod is not None and pod.phase is PodPhase.PENDING


def _held(situation: Situation, wanted: list[str]) -> Held | None:
    """Return what the containers see where every card is held."""
    uuids = uuids_of(held_cards(situation))
    if set(wanted) <= uuids.keys():
        return Held({card: uuids[card] for card in wanted})
    return None


def _age(reservation: Reservation) -> tuple[float, int]:
    """Order reservations by when they were made; those of one second by who changed last."""
    return reservation.created_at, int(reservation.version or 0)


def _is_known(situation: Situation, card: str) -> bool:
    return any(each.card == card for each in held_cards(situation).values())
