"""The memory law, case by case. The numbers of a case are the explanation."""

import pytest

from builders import claim, gpu, observation, process
from vramline.model.claim import Claim, ClaimState
from vramline.model.gpu import PhysicalGpu
from vramline.model.law import take_account
from vramline.model.observation import NOT_REPORTED, Observation, Unknown
from vramline.units import Mib

MARGIN = Mib(100)


def test_the_fifth_pod_of_8000_finds_500_left_of_32600() -> None:
    account = take_account(gpu(), [claim(8_000, f"ns/{i}") for i in range(4)], None, MARGIN)

    assert (account.claimed, account.free) == (32_000, 500)


def test_memory_reserved_by_the_driver_is_not_usable() -> None:
    account = take_account(gpu(total=81_559, reserved=Mib(550)), [], observation(0), MARGIN)

    assert (account.usable, account.free) == (81_009, 80_909)


def test_a_reserved_but_idle_claim_and_an_unmanaged_process_both_count() -> None:
    account = take_account(gpu(total=16_384), [claim(4_096)], observation(6_144, process(6_144)), Mib(0))

    assert (account.held, account.unmanaged, account.free) == (4_096, 6_144, 6_144)


def test_a_pod_that_uses_more_than_it_claimed_is_held_to_what_it_uses() -> None:
    account = take_account(gpu(), [claim(8_000)], observation(9_000, process(9_000, "ns/other")), MARGIN)

    assert (account.claimed, account.held, account.unmanaged, account.free) == (8_000, 9_000, 0, 23_500)


def test_a_pod_that_uses_less_than_it_claimed_keeps_its_claim() -> None:
    account = take_account(gpu(), [claim(8_000)], observation(2_000, process(2_000, "ns/other")), MARGIN)

    assert (account.held, account.unmanaged, account.free) == (8_000, 0, 24_500)


def test_a_pod_without_a_claim_is_unmanaged() -> None:
    account = take_account(gpu(), [], observation(3_000, process(3_000, "ns/stranger")), MARGIN)

    assert (account.held, account.unmanaged) == (0, 3_000)


@pytest.mark.parametrize(
    ("used", "unmanaged"),
    [
        pytest.param(60, 0, id="residue below the margin costs nothing more"),
        pytest.param(100, 0, id="residue as large as the margin is covered by it"),
        pytest.param(130, 30, id="only the rest above the margin is unmanaged"),
    ],
)
def test_what_no_listed_process_holds_is_charged_to_the_margin_first(used: int, unmanaged: int) -> None:
    account = take_account(gpu(), [], observation(used), MARGIN)

    assert (account.unmanaged, account.free) == (unmanaged, 32_500 - unmanaged)


def test_residue_is_charged_to_the_margin_beside_running_pods_too() -> None:
    seen = observation(5_050, process(5_000, "ns/other"))

    account = take_account(gpu(), [claim(8_000)], seen, MARGIN)

    assert account.unmanaged == 0


@pytest.mark.parametrize(
    ("started_at", "unmanaged"),
    [
        pytest.param(50.0, 2_000, id="a pod that ran before the sample explains its claim"),
        pytest.param(None, 10_000, id="a pod that has not started explains nothing"),
        pytest.param(100.0, 10_000, id="a pod that started with the sample explains nothing"),
    ],
)
def test_without_a_process_list_claims_that_ran_explain_the_used_figure(
    started_at: float | None, unmanaged: int
) -> None:
    account = take_account(
        gpu(), [claim(8_000, started_at=started_at)], observation(10_000, listed=False), MARGIN
    )

    assert (account.unmanaged, account.unmanaged_is_lower_bound) == (unmanaged, True)


def test_without_a_process_list_a_calm_card_has_no_negative_unmanaged_memory() -> None:
    account = take_account(gpu(), [claim(8_000, started_at=1.0)], observation(500, listed=False), MARGIN)

    assert (account.unmanaged, account.free) == (0, 24_500)


def test_a_process_nobody_could_attribute_makes_the_figure_a_lower_bound() -> None:
    seen = observation(9_000, process(4_000, "ns/other"), process(5_000, NOT_REPORTED))

    account = take_account(
        gpu(), [claim(4_000, started_at=1.0), claim(3_000, "ns/quiet", started_at=1.0)], seen, MARGIN
    )

    assert (account.held, account.unmanaged, account.unmanaged_is_lower_bound) == (7_000, 2_000, True)


def test_processes_that_add_up_to_more_than_the_card_says_free_nothing() -> None:
    account = take_account(gpu(), [claim(2_000)], observation(1_000, process(5_000, "ns/other")), MARGIN)

    assert (account.held, account.unmanaged, account.free) == (5_000, 0, 27_500)


def test_without_an_observation_unmanaged_is_unknown_and_free_is_by_the_books() -> None:
    account = take_account(gpu(), [claim(8_000)], None, MARGIN)

    assert isinstance(account.unmanaged, Unknown)
    assert account.free == account.free_by_books == 24_500


def test_an_observation_that_does_not_tell_the_used_figure_is_none() -> None:
    account = take_account(gpu(), [], Observation(at=1.0, used=Unknown("not supported")), MARGIN)

    assert account.unmanaged == Unknown("not supported")
    assert account.free == 32_500


def test_an_over_committed_card_has_a_deficit_that_is_not_clamped() -> None:
    account = take_account(gpu(), [claim(40_000)], None, MARGIN)

    assert account.free == -7_500


def test_releasing_memory_is_part_of_what_is_held() -> None:
    leaving: Claim = claim(24_000, state=ClaimState.RELEASING)

    account = take_account(gpu(), [leaving], observation(24_000, process(24_000, "ns/other")), MARGIN)

    assert (account.held, account.held_releasing, account.free) == (24_000, 24_000, 8_500)


def test_unknown_refuses_to_be_a_truth_value() -> None:
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(Unknown("no answer"))


BOARD = PhysicalGpu(uuid="GPU-1", node="n", total=Mib(32_000), reserved=Mib(1_000), unified=True)


def test_what_pods_request_of_a_machine_is_held_on_a_gpu_without_memory_of_its_own() -> None:
    account = take_account(BOARD, [], None, Mib(100), {"ordinary": 10_000})

    assert (account.requested, account.claimed, account.held) == (10_000, 10_000, 10_000)
    assert account.free_by_books == 31_000 - 100 - 10_000


def test_a_card_with_memory_of_its_own_takes_no_notice_of_what_pods_request_of_the_machine() -> None:
    card = PhysicalGpu(uuid="GPU-1", node="n", total=Mib(32_000))

    assert take_account(card, [], None, Mib(0), {"ordinary": 10_000}).free == 32_000


@pytest.mark.parametrize(
    ("request_mib", "held"),
    [
        pytest.param(0, 8_000, id="no request"),
        pytest.param(5_000, 8_000, id="less than the claim"),
        pytest.param(8_000, 8_000, id="as much as the claim"),
        pytest.param(9_000, 9_000, id="more than the claim"),
    ],
)
def test_a_pod_holds_the_greater_of_its_claim_and_its_request(request_mib: int, held: int) -> None:
    claim = Claim(pod_uid="u", pod="ns/p", gpu="GPU-1", mib=Mib(8_000))

    account = take_account(BOARD, [claim], None, Mib(0), {"u": request_mib})

    assert (account.claimed, account.held) == (held, held)


def test_memory_in_use_is_explained_by_requests_before_it_is_nobodys() -> None:
    seen = Observation(at=10.0, used=Mib(12_500))

    account = take_account(BOARD, [], seen, Mib(0), {"ordinary": 10_000})

    assert (account.held, account.requested_in_use, account.unmanaged) == (10_000, 10_000, 2_500)
    assert account.free == 31_000 - 12_500


def test_requests_that_are_not_used_yet_are_not_free() -> None:
    seen = Observation(at=10.0, used=Mib(2_500))

    account = take_account(BOARD, [], seen, Mib(0), {"ordinary": 10_000})

    assert (account.unmanaged, account.requested_in_use, account.free) == (0, 2_500, 21_000)
