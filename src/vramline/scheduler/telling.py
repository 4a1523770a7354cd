"""What a Binding tells the pod's containers: which cards they see, and how much of a card is theirs."""

from collections.abc import Mapping

import msgspec

from vramline.model.ask import MibSize, ShareSize
from vramline.model.decision import Placement
from vramline.model.fleet import Fleet
from vramline.model.pod import Pod
from vramline.wire import keys
from vramline.wire.device_names import BY_UUID, name_devices
from vramline.wire.kai_portion import portion_of

__all__ = ["Telling"]


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """How it is told."""

    device_names: str = BY_UUID
    """`uuid`, or the CDI kind by which the runtime knows cards."""

    def about(self, fleet: Fleet, pod: Pod, placement: Placement, uuids: Mapping[str, str]) -> dict[str, str]:
        """Return annotations by key; `uuids` has the names of cards that were placed under another."""
        cards = [uuids.get(share.uuid, share.uuid) for share in placement.gpus]
        told = {keys.VISIBLE_DEVICES: name_devices(cards, self.device_names)}
        share = placement.gpus[0]
        card = fleet.gpu(share.uuid)
        if card is not None and pod.ask is not None and isinstance(pod.ask.size, MibSize | ShareSize):
            told[keys.PORTION] = portion_of(pod.ask.size, share.mib, card.total)
        return told
