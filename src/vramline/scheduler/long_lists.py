"""Filter and prioritize for lists of thousands of names, past the names themselves.

The answer is the same as that of `verbs`, which answers whatever is not usual: unknown nodes, full objects,
odd spellings, pods with a reservation. Names are found by `wire.name_table` as numbers of nodes, the decision
is about numbers anyway, and the answer is cut out of the request's own text.
"""

import msgspec
import numpy as np
import numpy.typing as npt

from vramline.errors import RequestError
from vramline.model.cluster import Cluster
from vramline.model.decision import Decision
from vramline.model.fleet import Fleet
from vramline.model.reason import FITS
from vramline.scheduler.journal import Journal
from vramline.scheduler.preempter import Preempter
from vramline.scheduler.refusals import REFUSALS, may_be_resolved
from vramline.scheduler.verbs import (
    decide_among,
    decided_for_filter,
    open_among,
    pod_of,
    points_of,
    record_filter,
)
from vramline.wire.extender_v1 import MAX_SCORE, LongArgs, read_long_args
from vramline.wire.name_table import FoundNames, NameTable

__all__ = ["LongLists"]

Flags = npt.NDArray[np.bool_]

_WORDS = {code: msgspec.json.encode(text) for code, text in REFUSALS.items()}


class LongLists:
    """Answers what it can answer quickly, with JSON; None: ask `verbs`."""

    def __init__(self, cluster: Cluster, journal: Journal) -> None:
        self._cluster = cluster
        self._journal = journal
        self._table: tuple[int, NameTable] | None = None

    async def filter(self, body: bytes, preempter: Preempter | None) -> msgspec.Raw | None:
        """Return all nodes that fit, and for every other node why not."""
        args = read_long_args(body)
        found = None if args is None else self._find(args)
        if args is None or found is None:
            return None
        try:
            pod = pod_of(self._cluster, self._journal, args.pod)
        except RequestError:
            return None
        if pod.ask is None or pod.advances:
            return None
        version = self._cluster.fleet.names_version
        await self._cluster.recall(pod.uid)
        if version != self._cluster.fleet.names_version:
            return None
        candidates = open_among(self._cluster, pod, found.numbers)
        decision = decide_among(self._cluster, pod.ask, candidates)
        self._journal.last_filter = decision
        record_filter(self._cluster, self._journal, decision, candidates)
        fits = decision.node_codes[found.numbers] == FITS
        resolvable = fits if fits.all() else may_be_resolved(self._cluster.fleet, decision)[found.numbers]
        if preempter is not None:
            if fits.any():
                preempter.fits(pod.uid)
            else:
                preempter.refused(pod.uid, _names(self._cluster.fleet, found, resolvable))
        return msgspec.Raw(_write_filter(found, decision, fits, resolvable))

    def prioritize(self, body: bytes) -> msgspec.Raw | None:
        """Score the nodes 0 to 10 by their rank."""
        args = read_long_args(body)
        found = None if args is None else self._find(args)
        if args is None or found is None:
            return None
        pod = pod_of(self._cluster, self._journal, args.pod)
        if pod.ask is None:
            return None
        decision = decided_for_filter(self._cluster, self._journal, pod.ask, found.numbers)
        if decision is None:
            candidates = open_among(self._cluster, pod, found.numbers)
            decision = decide_among(self._cluster, pod.ask, candidates)
        points = points_of(decision, found.numbers)
        if decision.placement is not None:
            points[found.numbers == self._cluster.fleet.node_number(decision.placement.node)] = MAX_SCORE
        told = [_write_scores(names, score) for score, names in found.groups(points)]
        return msgspec.Raw(b"[" + b",".join(told) + b"]")

    def _find(self, args: LongArgs) -> FoundNames | None:
        fleet = self._cluster.fleet
        if self._table is None or self._table[0] != fleet.names_version:
            self._table = fleet.names_version, NameTable(fleet.names_by_number())
        return self._table[1].find(args.names)


def _names(fleet: Fleet, found: FoundNames, chosen: Flags) -> tuple[str, ...]:
    return tuple(fleet.name_of(number) for number in found.numbers[chosen].tolist())


def _write_filter(found: FoundNames, decision: Decision, fits: Flags, resolvable: Flags) -> bytes:
    if fits.all():
        return _joined(found.text, b"", b"")
    codes = decision.node_codes[found.numbers].astype(np.int64)
    left = b""
    failed: list[bytes] = []
    beyond_help: list[bytes] = []
    for key, names in found.groups(2 * codes + (fits | resolvable)):
        code, may_help = divmod(key, 2)
        if code == FITS:
            left = names
        else:
            (failed if may_help else beyond_help).append(_with_reason(names, code))
    return _joined(b"[" + left.removesuffix(b",") + b"]", b"".join(failed), b"".join(beyond_help))


def _joined(names: bytes, failed: bytes, beyond_help: bytes) -> bytes:
    return (
        b'{"Nodes":null,"NodeNames":%b,"FailedNodes":{%b},"FailedAndUnresolvableNodes":{%b},"Error":""}'
        % (
            names,
            failed.removesuffix(b","),
            beyond_help.removesuffix(b","),
        )
    )


def _with_reason(names: bytes, code: int) -> bytes:
    """From `"a","b",` to `"a":"why","b":"why",`: no name has a quote in it."""
    return names.replace(b'",', b'":%b,' % _WORDS[code])


def _write_scores(names: bytes, score: int) -> bytes:
    """From `"a","b",` to `{"Host":"a","Score":1},{"Host":"b","Score":1}`."""
    between = b'","Score":%d},{"Host":' % score
    return b'{"Host":' + names.replace(b'",', between).removesuffix(b',{"Host":')
