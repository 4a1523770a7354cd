"""Why a container may not start yet, in one line."""

from vramline.decide.starting import Shortfall

__all__ = ["explain_shortfall"]


def explain_shortfall(shortfall: Shortfall) -> str:
    """Say which card is short, by how much, and the arithmetic.

    >>> from vramline.decide.starting import SeenCard, judge_start
    >>> from vramline.model.claim import Claim
    >>> from vramline.model.gpu import PhysicalGpu
    >>> from vramline.model.observation import GpuProcess, Observation
    >>> from vramline.units import Mib
    >>> card = PhysicalGpu(uuid="GPU-1", node="n", total=Mib(24000))
    >>> stranger = GpuProcess(pid=7, used=Mib(10000), pod_uid=None)
    >>> seen = SeenCard(card, Observation(at=1.0, used=Mib(10000), processes=(stranger,)))
    >>> claim = Claim(pod_uid="u", pod="ml/a", gpu="GPU-1", mib=Mib(16000))
    >>> judged = judge_start("ml/a", [claim], {"GPU-1": seen}, margin=Mib(100), has_run=False)
    >>> explain_shortfall(judged.short[0]).partition(": ")[2]
    'usable 24,000 − held 16,000 − unmanaged 10,000 = −2,000 MiB'
    """
    claim, account = shortfall.claim, shortfall.account
    at_least = "at least " if account.unmanaged_is_lower_bound else ""
    return (
        f"{claim.gpu} lacks {shortfall.short:,} MiB of the {claim.mib:,} promised to {claim.pod}:"
        f" usable {account.usable:,} − held {account.held:,} − unmanaged {at_least}{shortfall.unmanaged:,}"
        f" = −{shortfall.short:,} MiB"
    )
