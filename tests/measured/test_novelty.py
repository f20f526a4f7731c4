"""Errors by whether a sibling, the kind of machine alone, or neither was measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from netsim.measured import accuracy
from netsim.measured.compare import ComparedPoint
from netsim.measured.index import IndexEntry, read_index
from netsim.measured.novelty import (
    by_novelty,
    errors_text,
    group_of,
    left_out_by,
    novelty_errors,
    novelty_left_out,
    page_rows,
    trait_of,
    traits_text,
)
from netsim.results import novelty as novelties
from netsim.results.novelty import KIND, NEITHER, SIBLING, Trait, nccl_generation, novelty_of
from netsim.results.row import TimeInterval
from tests.cli.command import netsim

CORPUS = read_index(Path("scenarios/measured/index.yaml"))
ENTRIES = {entry.id: entry for entry in CORPUS}
L40S = ENTRIES["aic_l40s_2273_2_all_reduce"]
EFA = ENTRIES["aws_p5_h100_2x8_all_reduce_1"]
H100 = ENTRIES["aic_h100_sxm_2292_8_all_gather"]


@pytest.mark.parametrize(
    ("version", "generation"),
    [((2, 10), "2.0"), ((2, 18), "2.13"), ((2, 27), "2.23"), ((2, 30), "2.28"), ((1, 3), "2.0")],
)
def test_a_generation_is_named_by_its_oldest_version(version, generation) -> None:
    assert nccl_generation(*version) == generation


def test_a_question_is_near_to_runs_of_its_machine_transport_and_generation() -> None:
    asked = Trait("dgx-h100", "intra", "2.23")
    assert novelty_of(asked, [asked, Trait("dgx-a100", "efa", "2.13")]) == SIBLING
    assert novelty_of(asked, [Trait("dgx-h100", "intra", "2.28")]) == KIND
    assert novelty_of(asked, [Trait("dgx-a100", "intra", "2.23")]) == NEITHER
    assert novelty_of(asked, []) == NEITHER


def test_the_trait_of_a_run_has_the_generation_of_its_nccl() -> None:
    assert trait_of(L40S) == Trait("l40s-pcie-x8", "intra", "2.23")


def test_levels_leave_out_the_system_the_transport_and_the_machine() -> None:
    assert group_of(EFA, "system") == EFA.system
    same_transport = {
        e.id for e in CORPUS if group_of(e, "transport") == group_of(EFA, "transport")
    }
    same_machine = {e.id for e in CORPUS if group_of(e, "kind") == group_of(EFA, "kind")}
    assert EFA.id in same_transport
    assert same_transport < same_machine
    assert {ENTRIES[run].machine for run in same_machine} == {"dgx-h100"}


def test_what_is_left_out_decides_the_class_of_a_run() -> None:
    assert novelty_left_out(H100, "system", CORPUS) == SIBLING
    assert novelty_left_out(EFA, "transport", CORPUS) == KIND
    assert novelty_left_out(EFA, "kind", CORPUS) == NEITHER
    assert novelty_left_out(L40S, "system", CORPUS) == NEITHER  # no other L40S was measured


def point(
    entry: IndexEntry, simulated_us: float, *, size: int = 1024, system: str = ""
) -> ComparedPoint:
    what = entry.id, entry.machine, entry.collective, size, 10.0, simulated_us
    return ComparedPoint(*what, "Ring", "LL", entry.healthy, system or entry.system)


def test_a_run_counts_once_in_a_class_at_the_level_that_leaves_out_least() -> None:
    points = {
        "system": [point(L40S, 11.0)],
        "transport": [point(L40S, 12.0)],
        "kind": [point(L40S, 13.0), point(EFA, 20.0)],
    }
    classes = by_novelty(points, CORPUS)
    assert [one.simulated_us for one in classes[NEITHER]] == [11.0, 20.0]
    assert not classes[SIBLING]
    assert not classes[KIND]


def test_runs_with_a_problem_are_in_no_class() -> None:
    problem = ENTRIES["aic_l40s_2273_4_all_reduce"]
    assert not any(by_novelty({"kind": [point(problem, 11.0)]}, CORPUS).values())


def test_an_interval_holds_four_fifths_of_systems_that_it_has_not_seen() -> None:
    """Eleven systems whose simulations are 1 to 11 % too slow."""
    points = [point(H100, 10.0 * (1 + n / 100), system=f"s{n}") for n in range(1, 12)]
    (error,) = novelty_errors({KIND: points})
    assert error.error.systems == 11
    assert error.error.median == pytest.approx(0.06, abs=0.001)
    assert error.interval is not None
    assert 1 / 1.11 <= error.interval.low < error.interval.high <= 1 / 1.01
    assert error.within == pytest.approx(9 / 11)  # all but the ends


def test_runs_with_a_sibling_are_held_against_the_interval_of_their_class_of_machines() -> None:
    points = [point(H100, 11.0, system="a"), point(H100, 11.0, size=2048, system="b")]
    (error,) = novelty_errors({SIBLING: points}, {(H100.id, 1024): True, (H100.id, 2048): False})
    assert error.within == pytest.approx(0.5)
    assert error.interval is None
    (error,) = novelty_errors({SIBLING: points}, {})
    assert error.within is None


def test_few_systems_have_an_error_but_no_interval() -> None:
    (error,) = novelty_errors({KIND: [point(H100, 12.0)]})
    assert error.interval is None
    assert error.within is None
    assert next(iter(page_rows([error]))).startswith("| the kind was measured | <=64KiB | 20.0%")


def test_left_out_points_have_their_own_systems() -> None:
    """A constant that only this kind shows is taken from the next wider class."""
    row = replace(L40S, values={**L40S.values})
    found = accuracy.run_index([row], jobs=1)
    left = left_out_by("kind", found, [row], [row], jobs=1)
    assert {one.system for one in left} == {"aic_l40s_2273"}
    assert {one.size_bytes for one in left} == {one.size_bytes for one in found.points}
    assert left != found.points


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A folder of presets with the traits of L40S and an error of each class."""
    folder = tmp_path / "measured"
    folder.mkdir()
    points = [point(H100, 10.0 * (1 + n / 100), system=f"s{n}") for n in range(1, 12)]
    classes = {SIBLING: points, KIND: points, NEITHER: points}
    (folder / "novelty.csv").write_text(errors_text(novelty_errors(classes)))
    (folder / "traits.csv").write_text(traits_text([L40S]))
    monkeypatch.setattr(novelties, "preset_folder", lambda name: tmp_path)
    for cached in (novelties.measured_traits, novelties.class_errors):
        cached.cache_clear()
    yield folder
    for cached in (novelties.measured_traits, novelties.class_errors):
        cached.cache_clear()


def test_validated_names_the_class_of_what_has_no_sibling(stored) -> None:
    sibling = Trait("l40s-pcie-x8", "intra", "2.23")
    assert novelties.novelty_text(sibling, "<=64KiB") == ""
    kind = replace(sibling, transport="roce")
    expected = "; the kind was measured: 6% left out"
    assert novelties.novelty_text(kind, "<=64KiB") == expected
    unknown = replace(sibling, machine="r9700")
    assert novelties.novelty_text(unknown, "<=64KiB") == "; neither was measured: 6% left out"
    assert novelties.novelty_text(unknown, ">=64MiB") == ""  # no run of the band


def test_the_interval_of_what_has_no_sibling_is_that_of_its_class(stored) -> None:
    sibling = Trait("l40s-pcie-x8", "intra", "2.23")
    assert novelties.interval_of_novelty(sibling, "<=64KiB") is None
    interval = novelties.interval_of_novelty(replace(sibling, machine="r9700"), "<=64KiB")
    assert isinstance(interval, TimeInterval)
    assert interval.systems == 11
    assert interval.low < interval.high < 1


def test_novelty_needs_leave_out(capsys) -> None:
    outcome = netsim(capsys, "accuracy", "--novelty", "--only", "aic_l40s")
    assert outcome.code == 2
    assert "--novelty: needs --leave-out" in outcome.err
