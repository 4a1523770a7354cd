"""What must hold in every tick of the demo. A breach stops it: a demo that lies is worse than none."""

from collections.abc import Iterable

from vramline.demo.cards import SimulatedCard
from vramline.errors import InvariantError
from vramline.model.fleet import Fleet
from vramline.model.observation import Unknown

__all__ = ["check_cards"]


def check_cards(fleet: Fleet, cards: Iterable[SimulatedCard]) -> None:
    """Compare the books, the memory law and the columns with what is really on the cards.

    To be called after all cards were looked at and before anything on them changes.
    """
    for card in cards:
        _check_books(fleet, card)
        _check_law(fleet, card)


def _check_books(fleet: Fleet, card: SimulatedCard) -> None:
    """No card is promised more often than it has memory, slots and cores."""
    gpu = card.gpu
    claims = fleet.ledger.of_card(gpu.uuid)
    promised = sum(claim.mib for claim in claims)
    _demand(promised <= gpu.usable - fleet.margin, card, f"{promised} MiB promised")
    _demand(gpu.slots is None or len(claims) <= gpu.slots, card, f"{len(claims)} pods share it")
    _demand(sum(claim.cores for claim in claims) <= gpu.cores, card, "cores promised twice")


def _check_law(fleet: Fleet, card: SimulatedCard) -> None:
    """The account of a card is what its claims and its true use add up to, computed here once more."""
    gpu = card.gpu
    claims = fleet.ledger.of_card(gpu.uuid)
    account = fleet.account(gpu.uuid)
    use = {pod: sum(p.mib for p in card.processes if p.pod_uid == pod) for pod in {c.pod_uid for c in claims}}
    seen = {} if gpu.unified else use
    held = sum(max(claim.mib, seen.get(claim.pod_uid, 0)) for claim in claims)
    _demand(account.held == held, card, f"held {account.held}, not {held}")
    _demand(not isinstance(account.unmanaged, Unknown), card, "nobody looked at it")
    if not isinstance(account.unmanaged, Unknown):
        unmanaged = card.used - sum(use.values())
        exact = account.unmanaged == unmanaged
        _demand(exact or gpu.unified, card, f"unmanaged {account.unmanaged}, not {unmanaged}")
        free = gpu.usable - fleet.margin - held - account.unmanaged
        _demand(account.free == free, card, f"free {account.free}, not {free}")
    row = fleet.columns.row_of[gpu.uuid]
    _demand(int(fleet.columns.free_observed[row]) == account.free, card, "columns and account differ")


def _demand(holds: bool, card: SimulatedCard, breach: str) -> None:  # noqa: FBT001 — a condition, not a switch
    if not holds:
        raise InvariantError(f"GPU {card.gpu.uuid} of {card.gpu.node}: {breach}")
