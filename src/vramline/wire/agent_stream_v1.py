"""Frames between a node's agent and a replica of the scheduler: JSON text, one frame a message.

    agent → scheduler   {"kind": "sample", "ageMs": 12, "status": {…}}         every sample
                        {"kind": "look", "id": 7, "ageMs": 0, "status": {…}}   answer: the cards asked for
    scheduler → agent   {"kind": "look", "id": 7, "gpus": ["GPU-…"]}           look at these cards now
                        {"kind": "rest", "ms": 3000}                           repeat yourself less often

`status` is that of a `GpuReport`. Whose it is, is never said in a frame: the node is that of the token with
which the stream was opened. How fresh a sample is, is its age on arrival, not the agent's clock.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from vramline.errors import RequestError
from vramline.wire.decoding import decode_json
from vramline.wire.report_v1alpha1 import GpuReport, ReportStatus, report_of

__all__ = [
    "AUDIENCE",
    "MAX_FRAME_BYTES",
    "PATH",
    "AgentFrame",
    "LookAnswer",
    "LookRequest",
    "Rest",
    "Sample",
    "SchedulerFrame",
    "decode_agent_frame",
    "decode_scheduler_frame",
    "encode_frame",
    "report_in",
]

PATH = "/agents/v1/stream"
AUDIENCE = "vramline"
"""What the agent's token must have been made for."""
MAX_FRAME_BYTES = 1 << 20
"""Larger frames are refused, by both sides."""

_Id = Annotated[int, Meta(ge=0, le=2**53)]
_AgeMs = Annotated[int, Meta(ge=0, le=86_400_000)]
_Uuid = Annotated[str, Meta(min_length=1, max_length=253)]


class Sample(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="sample"):
    """What the agent saw at its last sample."""

    age_ms: _AgeMs
    """How long before the sending the cards were read."""
    status: ReportStatus


class LookAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="kind", tag="look"):
    """What the agent saw when it was asked to look. A card that is not in it could not be read."""

    id: _Id
    """Of the request."""
    age_ms: _AgeMs
    status: ReportStatus


class LookRequest(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="look"):
    """Look at these cards now and answer with the same number."""

    id: _Id
    gpus: Annotated[tuple[_Uuid, ...], Meta(max_length=1024)]


class Rest(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="rest"):
    """There are many agents: a sample that says nothing new may wait so long after the one before it."""

    ms: Annotated[int, Meta(ge=0, le=60_000)]


AgentFrame = Sample | LookAnswer
SchedulerFrame = LookRequest | Rest

_AGENT: msgspec.json.Decoder[AgentFrame] = msgspec.json.Decoder(AgentFrame)
_SCHEDULER: msgspec.json.Decoder[SchedulerFrame] = msgspec.json.Decoder(SchedulerFrame)


def encode_frame(frame: AgentFrame | SchedulerFrame) -> str:
    """Write one frame."""
    return msgspec.json.encode(frame).decode()


def decode_agent_frame(text: str, *, subject: str = "agent") -> AgentFrame:
    """Read what an agent sent; raises `RequestError`.

    >>> decode_agent_frame('{"kind": "sample", "ageMs": 12, "status": {}}').age_ms
    12
    """
    try:
        return _AGENT.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _problem_of(text, AgentFrame, subject) from None


def decode_scheduler_frame(text: str, *, subject: str = "scheduler") -> SchedulerFrame:
    """Read what a replica of the scheduler sent; raises `RequestError`."""
    try:
        return _SCHEDULER.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise _problem_of(text, SchedulerFrame, subject) from None


def report_in(frame: AgentFrame, *, node: str, received_at: float) -> GpuReport:
    """Return a frame's report as that of `node`, observed `ageMs` before it was received.

    `received_at` is the receiver's own clock, in seconds since the epoch: the agent's does not count.
    """
    report = report_of(frame.status, node=node, subject=f"agent of node {node}")
    return msgspec.structs.replace(report, observed_at=received_at - frame.age_ms / 1000)


def _problem_of(text: str, kind: object, subject: str) -> RequestError:
    """Decode again, slowly, to say what is wrong where."""
    try:
        decode_json(text, kind, subject=subject, field="frame")  # type: ignore[arg-type]  # a union of types
    except RequestError as problem:
        return problem
    return RequestError(subject=subject, field="frame", problem="cannot be read")
