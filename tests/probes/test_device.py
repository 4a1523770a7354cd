"""What a probe says of a card."""

import msgspec
import pytest

from vramline.probes.device import DeviceReading, Failed, ProbeError, Unsupported, Vendor


@pytest.mark.parametrize(
    "answer", [Unsupported("no sensor"), Failed("TIMEOUT")], ids=["unsupported", "failed"]
)
def test_no_answer_is_neither_true_nor_false(answer: object) -> None:
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(answer)


def test_a_field_that_nobody_filled_is_unsupported_never_zero() -> None:
    reading = DeviceReading(uuid="GPU-1", vendor=Vendor.NVIDIA)

    assert reading.used == Unsupported()
    assert reading.processes == Unsupported()


def test_a_reading_survives_json() -> None:
    reading = DeviceReading(uuid="GPU-1", vendor=Vendor.NVIDIA, used=Failed("GPU_IS_LOST"))

    assert msgspec.json.decode(msgspec.json.encode(reading), type=DeviceReading) == reading


def test_an_error_names_cause_every_path_and_what_to_do() -> None:
    error = ProbeError(
        "unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND",
        code="LIBRARY_NOT_FOUND",
        cause="there is no library",
        tried=("/a (not there)", "/b (not a library)"),
        advice="Install the driver.",
    )

    assert str(error) == (
        "unable to initialize NVML: ERROR_LIBRARY_NOT_FOUND: there is no library;"
        " tried /a (not there), /b (not a library). Install the driver."
    )
