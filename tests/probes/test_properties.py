"""Whatever a driver, a kernel or a program says: an answer, no exception, and never more than there is."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from vramline.probes.amounts import believe_total, believe_used
from vramline.probes.device import DeviceReading, Failed, Unsupported
from vramline.probes.smi import FIELDS, parse_cards, parse_processes
from vramline.probes.unified import read_gpu_part, read_load, read_pool
from vramline.units import Mib

SIZES = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 2**42), st.just(2**64 - 1), st.just(0))
WORDS = st.one_of(
    st.sampled_from(
        [
            "0",
            "1",
            "GPU-1",
            "81559",
            "6144",
            "[N/A]",
            "[GPU is lost]",
            "",
            "-1",
            "ERR!",
            "1e9",
            "٣",
            "9" * 5000,
        ]
    ),
    st.text(max_size=8),
)
LINES = st.lists(WORDS, min_size=len(FIELDS), max_size=len(FIELDS)).map(", ".join)


@given(total=SIZES, used=SIZES)
def test_used_is_never_more_than_total_nor_less_than_was_said(total: int, used: int) -> None:
    whole = believe_total(total)
    taken = believe_used(used, whole)

    if isinstance(taken, int):
        assert isinstance(whole, int)
        assert 0 <= taken <= whole
        assert taken * 2**20 >= min(used, whole * 2**20)
    else:
        assert isinstance(taken, Failed)
        assert taken.code == "NONSENSE"


@given(text=st.one_of(LINES, st.lists(LINES).map("\n".join), st.text()), processes=st.text())
def test_whatever_nvidia_smi_prints_is_read_or_refused(text: str, processes: str) -> None:
    read = parse_cards(text, FIELDS, processes)

    for card in [] if isinstance(read, Failed) else read:
        assert_is_sound(card)


@given(text=st.lists(st.lists(WORDS, min_size=3, max_size=3).map(", ".join)).map("\n".join))
def test_whatever_processes_it_prints_are_read_or_refused(text: str) -> None:
    read = parse_processes(text, "GPU-1", Mib(81_559))

    for process in read if isinstance(read, tuple) else ():
        assert process.pid > 0
        assert isinstance(process.used, Unsupported | Failed) or 0 <= process.used <= 81_559


@given(
    meminfo=st.lists(
        st.tuples(
            st.sampled_from(["MemTotal", "MemAvailable", "MemFree", "NvMapMemUsed"]), st.integers(0, 2**40)
        )
    ),
    noise=st.binary(max_size=64),
    reserve=st.integers(0, 4096),
)
def test_whatever_the_kernel_shows_is_read_or_refused(
    meminfo: list[tuple[str, int]], noise: bytes, reserve: int, tmp_path_factory: object
) -> None:
    root = Path(str(tmp_path_factory.mktemp("root")))  # type: ignore[attr-defined]
    for name in ("proc", "sys/kernel/debug/nvmap/iovmm", "sys/devices/platform/gpu.0"):
        (root / name).mkdir(parents=True)
    lines = "".join(f"{key}:   {amount} kB\n" for key, amount in meminfo)
    (root / "proc/meminfo").write_bytes(lines.encode() + noise)
    (root / "sys/kernel/debug/nvmap/iovmm/clients").write_bytes(noise)
    (root / "sys/devices/platform/gpu.0/load").write_bytes(noise)

    pool = read_pool(root, Mib(reserve))
    part = read_gpu_part(root, Unsupported(), total=pool.total)

    read_load(root)
    if isinstance(pool.used, int):
        assert isinstance(pool.total, int)
        assert 0 <= pool.used <= pool.total
    if isinstance(part.used, int) and isinstance(pool.total, int):
        assert part.used <= pool.total


def assert_is_sound(card: DeviceReading) -> None:
    for amount in (card.used, card.reserved):
        if isinstance(amount, int):
            assert isinstance(card.total, int)
            assert 0 <= amount <= card.total
    assert not isinstance(card.total, int) or card.total > 0
