"""The table of scale: what it asks for can be built, and none of its cells is empty."""

import math
import re
from pathlib import Path

import pytest

from netsim.scenario.cells import expand
from netsim.scenario.models import node_count
from netsim.yamlio.read import parse_source
from tests.bench import scale

PAGE = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()


@pytest.mark.parametrize("gpus", scale.GPUS)
@pytest.mark.parametrize("fabric", scale.FABRICS)
def test_every_cell_is_a_cluster_of_so_many_gpus(fabric: str, gpus: int) -> None:
    nodes = gpus // 8
    kind = scale.FABRICS[fabric](nodes)
    scene = scale.SCENE.format(nodes=nodes, fabric=kind, collective="all_gather")
    cluster = expand(parse_source(scene, "x.yaml"))[0].scenario.cluster
    assert node_count(cluster) * 8 == gpus
    if fabric == "torus":
        dims = scale._dims(nodes)
        assert math.prod(dims) == nodes
        assert max(dims) <= 2 * min(dims)


def test_no_cell_of_the_page_is_empty() -> None:
    table = PAGE.partition(scale.MARKS[0])[2].partition(scale.MARKS[1])[0]
    lines = [line for line in table.splitlines() if re.match(r"\| [\d,]+ \|", line)]
    assert len(lines) == len(scale.GPUS) * len(scale.COLLECTIVES)
    for line in lines:
        cells = line.strip("| ").split(" | ")[1:]
        assert len(cells) == len(scale.FABRICS)
        assert all(re.search(r"\d MB, `|rows; needs up to [\d,.]+ GB", cell) for cell in cells)


def test_cells_that_were_not_run_say_what_they_need_at_least() -> None:
    unknown = scale._words(32768, "alltoall", {})
    assert unknown == "not run: in full about 2.1e+09 rows; needs up to 1,073.7 GB"
    expected = {"rows": 10, "bytes": 7e9, "why": "over 60 s"}
    assert "over 60 s" in scale._words(64, "all_gather", expected)
    assert "up to 7.0 GB" in scale._words(64, "all_gather", expected)
