"""What a pod asks of GPUs through annotations: Vramline's own spelling and KAI's."""

import re
from collections.abc import Mapping
from fractions import Fraction

import msgspec

from vramline.errors import RequestError
from vramline.model.ask import MibSize, ShareSize, Size
from vramline.units import Mib
from vramline.wire import keys
from vramline.wire.container_asks import ContainerAsk, SizeKind, add_up
from vramline.wire.kubernetes import PodSpec
from vramline.wire.quantities import read_bytes_as_mib, read_mib_annotation, read_vram, read_whole
from vramline.wire.stages import list_containers

__all__ = ["AnnotationAsk", "read_annotation_ask"]

MAX_GPUS = 64
"""Most GPUs that an annotation may ask for; no machine has more."""

_FRACTION = re.compile(r"0?\.[0-9]{1,9}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?", re.ASCII)
_FRACTION_FORMS = "a decimal between 0 and 1 with at most 9 decimals, such as 0.25"
_MEMORY_KEYS = (keys.VRAM, keys.KAI_MEMORY, keys.KAI_FRACTION)
_RESOURCES = (
    keys.GPU_COUNT,
    keys.GPU_COUNT_SHARED,
    keys.GPU_MEMORY_MIB,
    keys.GPU_MEMORY_PERCENT,
    keys.GPU_CORES,
)
"""Resources that are easily written as annotations by mistake; nobody reads them there."""


class AnnotationAsk(msgspec.Struct, frozen=True):
    """A size on each of `gpus` cards, and which annotation said so."""

    key: str
    gpus: int
    size: Size


def read_annotation_ask(annotations: Mapping[str, str], spec: PodSpec, subject: str) -> AnnotationAsk | None:
    """Read the one annotation that asks for memory; two of them are a contradiction."""
    _refuse_misplaced(annotations, subject)
    present = [key for key in _MEMORY_KEYS if key in annotations]
    present += [key for key in annotations if _is_container_key(key, subject)]
    families = {_family(key): key for key in reversed(present)}
    if len(families) > 1:
        first, second = list(families.values())[::-1][:2]
        raise RequestError(
            subject=subject,
            field=f"annotations {first} and {second}",
            problem="both ask for GPU memory",
            accepted="one of them",
        )
    key = present[0] if present else None
    gpus = _read_gpus(annotations, key, subject)
    _check_container_name(annotations, spec, key, subject)
    if key is None:
        return None
    return AnnotationAsk(key, gpus, _read_size(annotations, spec, key, subject))


def _family(key: str) -> str:
    """All container annotations of KAI are one spelling."""
    return keys.KAI_CONTAINER_PREFIX if key.startswith(keys.KAI_CONTAINER_PREFIX) else key


def _read_size(annotations: Mapping[str, str], spec: PodSpec, key: str, subject: str) -> Size:
    field = f"annotation {key}"
    if key == keys.VRAM:
        return MibSize(read_vram(annotations[key], subject=subject, field=field))
    if key == keys.KAI_MEMORY:
        return MibSize(read_mib_annotation(annotations[key], subject=subject, field=field))
    if key == keys.KAI_FRACTION:
        return _read_fraction(annotations[key], subject, field)
    return _read_containers(annotations, spec, subject)


def _read_fraction(text: str, subject: str, field: str) -> ShareSize:
    if _FRACTION.fullmatch(text) and (share := Fraction(text)):
        return ShareSize(share.numerator, share.denominator)
    accepted, problem = _FRACTION_FORMS, "is not a share of one GPU"
    if _NUMBER.fullmatch(text) and Fraction(text) == 1:
        problem, accepted = "is a whole GPU", f"{keys.GPU_COUNT}: 1 among the limits"
    elif _NUMBER.fullmatch(text) and Fraction(text) > 1:
        problem = "is more than one GPU"
        accepted += f", with {keys.KAI_FRACTION_DEVICES} for several GPUs"
    raise RequestError(subject=subject, field=field, value=text, problem=problem, accepted=accepted)


def _read_gpus(annotations: Mapping[str, str], key: str | None, subject: str) -> int:
    """Read how many GPUs the ask is for; a count that belongs to another spelling is refused."""
    count_key = keys.GPUS if key == keys.VRAM else keys.KAI_FRACTION_DEVICES
    for other, needed in (
        (keys.GPUS, keys.VRAM),
        (keys.KAI_FRACTION_DEVICES, f"{keys.KAI_MEMORY} or {keys.KAI_FRACTION}"),
    ):
        if other in annotations and (key is None or other != count_key):
            raise RequestError(
                subject=subject,
                field=f"annotation {other}",
                value=annotations[other],
                problem=f"needs {needed}, which says how much on each GPU",
                accepted=f"both, or {keys.GPU_COUNT} among the limits for plain GPUs",
            )
    if count_key not in annotations:
        return 1
    field = f"annotation {count_key}"
    text = annotations[count_key]
    if not (text.isascii() and text.isdigit()):
        raise RequestError(
            subject=subject,
            field=field,
            value=text,
            problem="is not a whole number",
            accepted=f"a whole number from 1 to {MAX_GPUS}",
        )
    return read_whole(text, subject=subject, field=field, low=1, high=MAX_GPUS)


def _check_container_name(
    annotations: Mapping[str, str], spec: PodSpec, key: str | None, subject: str
) -> None:
    name = annotations.get(keys.KAI_FRACTION_CONTAINER)
    if name is None:
        return
    if key not in (keys.KAI_MEMORY, keys.KAI_FRACTION):
        raise RequestError(
            subject=subject,
            field=f"annotation {keys.KAI_FRACTION_CONTAINER}",
            value=name,
            problem=f"needs {keys.KAI_MEMORY} or {keys.KAI_FRACTION}",
        )
    _find_container(spec, name, subject, keys.KAI_FRACTION_CONTAINER)


def _find_container(spec: PodSpec, name: str, subject: str, key: str) -> int:
    """Return the position of a container among all of the pod."""
    names = [container.name for container in list_containers(spec)]
    if not name or name not in names:
        raise RequestError(
            subject=subject,
            field=f"annotation {key}",
            value=name,
            problem="names no container of the pod",
            accepted=", ".join(filter(None, names)) or "the name of a container",
        )
    return names.index(name)


def _is_container_key(key: str, subject: str) -> bool:
    if not key.startswith(keys.KAI_CONTAINER_PREFIX):
        return False
    if key.endswith((keys.KAI_REQUEST_SUFFIX, keys.KAI_LIMIT_SUFFIX)):
        return True
    if ".gpu-memory" in key:
        raise RequestError(
            subject=subject,
            field=f"annotation {key}",
            problem="has an unknown ending",
            accepted=f"{keys.KAI_REQUEST_SUFFIX} or {keys.KAI_LIMIT_SUFFIX}",
        )
    return False


def _read_containers(annotations: Mapping[str, str], spec: PodSpec, subject: str) -> Size:
    """Read the per-container requests of KAI 0.18 and add up what runs together."""
    wanted: dict[int, ContainerAsk] = {}
    for key in annotations:
        if _is_container_key(key, subject):
            name = key.removeprefix(keys.KAI_CONTAINER_PREFIX)
            name = name.removesuffix(keys.KAI_REQUEST_SUFFIX).removesuffix(keys.KAI_LIMIT_SUFFIX)
            position = _find_container(spec, name, subject, key)
            amount = _read_request(annotations, name, subject)
            wanted[position] = ContainerAsk(container=name, kind=SizeKind.MIB, amount=amount)
    positions = range(len(list_containers(spec)))
    total = add_up(spec, [wanted.get(position) for position in positions], subject, same_cards=True)
    return MibSize(Mib(total.amount))


def _read_request(annotations: Mapping[str, str], container: str, subject: str) -> Mib:
    """Return what is scheduled for a container: its request, or its limit where there is no request."""
    found: list[Mib] = []
    for suffix in (keys.KAI_REQUEST_SUFFIX, keys.KAI_LIMIT_SUFFIX):
        key = f"{keys.KAI_CONTAINER_PREFIX}{container}{suffix}"
        if key in annotations:
            found.append(read_bytes_as_mib(annotations[key], subject=subject, field=f"annotation {key}"))
    if found[0] > found[-1]:
        raise RequestError(
            subject=subject,
            field=f"annotations {keys.KAI_CONTAINER_PREFIX}{container}{keys.KAI_REQUEST_SUFFIX}"
            f" and {keys.KAI_LIMIT_SUFFIX}",
            problem=f"the request ({found[0]} MiB) is more than the limit ({found[-1]} MiB)",
            accepted="a request up to the limit",
        )
    return found[0]


def _refuse_misplaced(annotations: Mapping[str, str], subject: str) -> None:
    for key in _RESOURCES:
        if key in annotations:
            raise RequestError(
                subject=subject,
                field=f"annotation {key}",
                value=annotations[key],
                problem="is a resource and has no effect as an annotation",
                accepted=f"{key} among the limits of a container",
            )
