"""Asks and rules at random, wilder than most: NUMA binding, constraints, every mode and policy."""

import msgspec
from hypothesis import strategies as st

from strategies import asks
from vramline.model.ask import Ask, Constraints, PolicyName, RealtimeMode
from vramline.model.rules import Rules

__all__ = ["ANY_RULES", "wishes"]

ANY_RULES = st.builds(
    Rules,
    mode=st.sampled_from(RealtimeMode),
    policy=st.sampled_from(PolicyName),
    stale_refuses=st.booleans(),
    unsized_is_whole=st.booleans(),
)

_CONSTRAINTS = st.builds(
    Constraints,
    use_models=st.sampled_from([(), (), ("h100",)]),
    use_uuids=st.sampled_from([(), (), (), ("GPU-n0-0", "GPU-n1-1"), ("GPU-nowhere",)]),
    numa_bind=st.booleans(),
)


def wishes() -> st.SearchStrategy[Ask]:
    """Any ask with any constraints."""
    return st.builds(
        lambda ask, constraints: msgspec.structs.replace(ask, constraints=constraints), asks(), _CONSTRAINTS
    )
