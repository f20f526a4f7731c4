"""The estimate of rows and memory, held against schedules that are built and placed in full."""

import pytest

from netsim.collectives.collective import collective_of
from netsim.collectives.table import build
from netsim.extent.memory import BYTES_A_PATH, BYTES_A_ROW, available_memory, estimated_size, misfit
from netsim.program.place import place
from netsim.schedule.schedule import Schedule
from netsim.topology.routing import switch


@pytest.mark.parametrize(
    ("collective", "algorithm"),
    [("all_reduce", "ring"), ("all_reduce", "double-binary-tree"), ("alltoall", "pairwise")],
)
def test_rows_and_memory_are_estimated_from_small_schedules(
    collective: str, algorithm: str
) -> None:
    def schedule_at(ranks: int) -> Schedule:
        return build(collective_of(collective, ranks, 1 << 20), algorithm)

    ranks = 512
    program = place(schedule_at(ranks), switch(ranks, 1e9))
    rows, memory = estimated_size(ranks, schedule_at)
    assert rows == pytest.approx(len(program), rel=0.1)
    exact = len(program) * BYTES_A_ROW + len(program.paths) * BYTES_A_PATH
    assert memory == pytest.approx(exact, rel=0.1)


def test_what_would_not_fit_says_how_many_ranks_would() -> None:
    free = available_memory()
    assert misfit(1000, free // 2, 100) == ""
    said = misfit(10**8, 4 * free, 10_000)
    assert "1e+08 rows" in said
    fitting = int(said.split("about ")[-1].split(" ranks")[0])
    assert fitting == pytest.approx(5_000, rel=0.05)  # rows and memory grow as its square
