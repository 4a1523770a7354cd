"""What is said about pods that are sent away, and about the one for which they go."""

from collections.abc import Sequence

from vramline.explain.text import clip, join_names
from vramline.model.pod import Pod

__all__ = ["tell_preemptor", "tell_victim"]


def tell_preemptor(node: str, victims: Sequence[Pod]) -> str:
    """Say for whose memory a pod waits; without victims for that of pods that leave anyway."""
    if not victims:
        return f"waits on {node} for memory of less important pods that are leaving"
    names = clip(join_names([f"{pod.key} (priority {pod.priority})" for pod in victims], last="and"))
    return f"only VRAM is short: {names} on {node} had to go; waits until their memory is proved free"


def tell_victim(node: str, preemptor: Pod) -> str:
    """Say to a pod for whom it has to go."""
    return (
        f"evicted from {node} for the VRAM it holds: {preemptor.key} (priority {preemptor.priority}) finds"
        " no room otherwise"
    )
