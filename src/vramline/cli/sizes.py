"""How large a cluster may be that a benchmark makes up."""

from vramline.errors import RequestError

__all__ = ["MOST_GPUS", "MOST_NODES", "MOST_PODS", "read_sizes"]

MOST_NODES = 20_000
MOST_GPUS = 16
MOST_PODS = 1_000_000


def read_sizes(text: str, *, subject: str) -> list[int]:
    """Read a comma list of numbers of nodes."""
    words = [word.strip() for word in text.split(",")]
    sizes = [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) < 9]
    if len(sizes) != len(words) or not all(1 <= size <= MOST_NODES for size in sizes):
        raise RequestError(
            subject=subject,
            field="--nodes",
            value=text,
            problem="is not a list of sizes",
            accepted=f"whole numbers from 1 to {MOST_NODES}, such as 1000,5000",
        )
    return sizes
