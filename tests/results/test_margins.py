"""How far below its expectation a healthy machine may be, and how sure a difference is."""

import random
from math import exp, log

import pytest

from netsim.results.differences import certainty_of, pair_kind, thresholds
from netsim.results.margins import (
    CONFIDENCES,
    ClassError,
    Margins,
    least_fraction,
    margin_classes,
    margins,
)
from netsim.results.row import BANDS, Joined

H100 = Joined("dgx-h100", "infiniband", 3200, "NVLink")
UNKNOWN = Joined("", "")
DRAWS = 300


def drawn_case(draw: random.Random) -> tuple[Joined, str, int]:
    where = draw.choice(
        [
            H100,
            Joined("dgx-a100", "intra", 0, "NVLink"),
            Joined("new", "efa", 400, "PCIe"),
            Joined("new", "new", 100, "NVLink"),
            UNKNOWN,
        ]
    )
    return where, draw.choice(["all_reduce", "alltoall", "scatter"]), 2 ** draw.randint(3, 34)


def test_a_gate_never_exceeds_the_expected_bandwidth() -> None:
    draw = random.Random(1)
    for _ in range(DRAWS):
        confidence = draw.uniform(CONFIDENCES[0], CONFIDENCES[-1])
        assert 0 < least_fraction(*drawn_case(draw), confidence) <= 1


def test_more_confidence_never_gives_a_higher_gate() -> None:
    draw = random.Random(2)
    for _ in range(DRAWS):
        case = drawn_case(draw)
        low, high = sorted(draw.uniform(CONFIDENCES[0], CONFIDENCES[-1]) for _ in range(2))
        assert least_fraction(*case, high) <= least_fraction(*case, low)


def test_the_error_bound_of_an_approximation_lowers_the_gate() -> None:
    exact = least_fraction(H100, "all_reduce", 2**30, 0.95)
    bounded = least_fraction(H100, "all_reduce", 2**30, 0.95, uncertainty=0.1)
    assert bounded == pytest.approx(exact / 1.1)


def test_a_machine_that_was_measured_often_has_a_higher_gate_than_an_unknown_one() -> None:
    known = least_fraction(Joined("dgx-h100", "intra", 0, "NVLink"), "all_reduce", 2**30, 0.95)
    assert known > least_fraction(UNKNOWN, "all_reduce", 2**30, 0.95)


def test_a_case_without_a_machine_has_only_the_widest_class() -> None:
    assert margin_classes(UNKNOWN, "all_reduce", BANDS[0]) == (("", "", "", BANDS[0]),)
    assert margin_classes(H100, "all_reduce", BANDS[0])[-1] == ("", "", "", BANDS[0])


def test_the_scale_of_a_class_of_few_systems_is_drawn_to_the_wider_one() -> None:
    wide, narrow = ("", "", "", "b"), ("m", "t", "", "b")
    errors = {wide: ClassError(0.04, 20), narrow: ClassError(0.01, 4)}
    found = Margins(errors, {}).scale((narrow, wide))
    assert found**2 == pytest.approx((4 * 0.01 + 4 * 0.04) / 8)


def test_quantiles_between_the_stored_ones_lie_on_a_straight_line() -> None:
    known = Margins({}, {"b": [float(n) for n in range(len(CONFIDENCES))]})
    assert known.quantile("b", 0.55) == pytest.approx(0.5)
    assert known.quantile("b", CONFIDENCES[-1]) == len(CONFIDENCES) - 1


def test_the_stored_margins_have_every_band_and_confidence() -> None:
    found = margins()
    assert set(found.quantiles) == set(BANDS)
    for values in found.quantiles.values():
        assert len(values) == len(CONFIDENCES)
        assert list(values) == sorted(values)


def test_sure_needs_a_larger_ratio_than_likely_and_either_direction_counts() -> None:
    for kind, limits in thresholds().items():
        assert 1 < limits.likely <= limits.sure
        for ratio in (limits.sure * 1.001, 1 / (limits.sure * 1.001)):
            assert certainty_of(ratio, kind) == "sure"
        assert certainty_of(exp(log(limits.likely) / 2), kind) == "cannot tell"


def test_an_error_bound_makes_a_difference_less_sure() -> None:
    limit = thresholds()["same collective"].sure
    assert certainty_of(limit * 1.01, "same collective") == "sure"
    assert certainty_of(limit * 1.01, "same collective", error_bound=0.5) == "cannot tell"


@pytest.mark.parametrize(
    ("same_machine", "same_collective", "measured", "kind"),
    [
        (True, True, 0, "same collective"),
        (True, False, 0, "same machine"),
        (False, True, 0, "other machine"),
        (True, True, 1, "other machine"),
        (False, False, 2, "measured"),
    ],
)
def test_kinds_of_pairs(same_machine, same_collective, measured, kind) -> None:
    found = pair_kind(same_machine=same_machine, same_collective=same_collective, measured=measured)
    assert found == kind
