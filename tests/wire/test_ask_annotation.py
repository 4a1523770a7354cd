"""The sealed ask: what is written is what is read."""

from typing import Any

import msgspec
import pytest
from hypothesis import given

import strategies
from kubernetes_builders import pod_object
from vramline.errors import RequestError
from vramline.model.ask import Ask, Constraints, MibSize, PolicyName, RealtimeMode, UnsizedSize
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.ask_annotation import encode_ask
from vramline.wire.asks import read_ask

SEAL = '{"gpus":1,"size":{"type":"mib","mib":8000}}'


def sealed(text: str, **fields: Any) -> Ask | None:
    annotations = {keys.ASK: text, **fields.pop("annotations", {})}
    return read_ask(pod_object(annotations=annotations, meta={"uid": "uid-ns/p"}, **fields))


@given(strategies.asks("ns/p"))
def test_what_is_written_is_what_is_read(ask: Ask) -> None:
    assert sealed(encode_ask(ask)) == ask


def test_every_part_of_an_ask_is_kept_but_the_pods_identity() -> None:
    ask = Ask(
        pod="ns/p",
        pod_uid="uid-ns/p",
        gpus=2,
        size=UnsizedSize(),
        cores=30,
        constraints=Constraints(
            use_models=("a100",),
            avoid_models=("t4",),
            use_uuids=("GPU-1",),
            avoid_uuids=("GPU-2",),
            numa_bind=True,
        ),
        mode=RealtimeMode.WARNING,
        enable_realtime=True,
        node_policy=PolicyName.BINPACK,
        gpu_policy=PolicyName.SPREAD,
    )
    defaults = Ask(pod="", pod_uid="", gpus=1, size=MibSize(Mib(1)))
    same = [
        field
        for field in msgspec.structs.fields(Ask)
        if getattr(ask, field.name) == getattr(defaults, field.name)
        and field.name != "cpu_milli"  # the spec says that, and is sealed by Kubernetes itself
    ]

    assert same == [], "say something else than the default about every field"
    assert sealed(encode_ask(ask)) == ask


def test_a_sealed_ask_is_read_instead_of_the_spellings() -> None:
    ask = sealed(SEAL, annotations={"gpu-memory": "1"})

    assert ask is not None
    assert ask.size == MibSize(Mib(8000))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("?", "is not JSON", id="no JSON"),
        pytest.param("[]", "must be a mapping", id="a list"),
        pytest.param("{}", "has no gpus", id="empty"),
        pytest.param('{"gpus":1}', "has no size", id="no size"),
        pytest.param('{"gpus":1,"size":{"type":"mib","mib":0}}', "size.mib = 0: is out of bounds", id="0"),
        pytest.param(
            '{"gpus":1,"size":{"type":"share","numerator":2,"denominator":2}}', "size.numerator", id="2/2"
        ),
        pytest.param('{"gpus":1,"size":{"type":"whole"},"cores":101}', "cores = 101", id="cores"),
        pytest.param('{"gpus":1,"size":{"type":"whole"},"mode":"x"}', "mode", id="an unknown mode"),
    ],
)
def test_a_broken_seal_is_refused(text: str, words: str) -> None:
    with pytest.raises(RequestError, match=r"annotation vramline.io/ask.*") as caught:
        sealed(text)

    assert words in str(caught.value)


def test_a_label_that_comes_later_does_not_undo_the_seal() -> None:
    labels = {"app": "kai-resource-reservation", "runai-gpu-group": "g"}

    assert sealed(SEAL, labels=labels) is not None
