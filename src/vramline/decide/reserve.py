"""From a decision to the claims that the ledger will hold."""

from vramline.errors import InvariantError
from vramline.model.claim import Claim
from vramline.model.decision import Decision
from vramline.model.ledger import Reservation

__all__ = ["reservation_of"]


def reservation_of(decision: Decision, *, epoch: int = 0) -> Reservation:
    """Return the claims of a decision that placed its pod: all of them are made together or none."""
    if decision.placement is None:
        raise InvariantError(f"{decision.ask.pod} was not placed; there is nothing to reserve")
    return Reservation(
        node=decision.placement.node,
        claims=tuple(
            Claim(
                pod_uid=decision.ask.pod_uid,
                pod=decision.ask.pod,
                gpu=share.uuid,
                mib=share.mib,
                cores=share.cores,
                epoch=epoch,
                mode=decision.mode,
            )
            for share in decision.placement.gpus
        ),
    )
