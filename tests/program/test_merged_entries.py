"""Entries of a path on the same link are merged; impossible rows and graphs are refused."""

from types import SimpleNamespace

import numpy as np
import pytest

from netsim.nccl.tuning import _no_graph
from netsim.program.path_entries import _merge_repeated
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Style


def test_entries_of_one_link_become_one_in_the_place_of_the_first() -> None:
    random = np.random.default_rng(5)
    for _ in range(20):
        ptr = np.cumsum([0, *random.integers(0, 7, 6)])
        link, weight = random.integers(0, 5, ptr[-1]).astype(np.int32), random.random(ptr[-1])
        merged_ptr, links, weights = _merge_repeated(ptr, link, weight)
        for path in range(6):
            sums: dict[int, float] = {}
            for at in range(ptr[path], ptr[path + 1]):
                sums[int(link[at])] = sums.get(int(link[at]), 0.0) + weight[at]
            entries = slice(merged_ptr[path], merged_ptr[path + 1])
            assert links[entries].tolist() == list(sums)
            assert weights[entries] == pytest.approx(list(sums.values()))


@pytest.mark.parametrize(
    ("src", "dst", "piece", "said"),
    [
        (2, 0, 0, "src: expected numbers in 0..1"),
        (0, 2, 0, "dst: expected numbers in 0..1"),
        (-1, 0, 0, "src: expected numbers in 0..1"),
        (0, 1, 1, "piece: expected numbers in 0..0"),
    ],
)
def test_rows_of_ranks_and_pieces_that_there_are_not_are_refused(
    src: int, dst: int, piece: int, said: str
) -> None:
    builder = Builder(2, 4)
    builder.pieces(8)
    builder.rows(Style(), 0, 1, 0)
    with pytest.raises(ValueError, match=said):
        builder.rows(Style(), src, dst, piece)


@pytest.mark.parametrize(("channels", "one_is_enough"), [(0, False), (1, False), (2, True)])
def test_only_nvls_needs_two_heads(channels: int, one_is_enough: bool) -> None:
    graph = SimpleNamespace(n_channels=channels)
    facts = SimpleNamespace(nvls_efficiency=True)
    comm = SimpleNamespace(graph=lambda _: graph, facts=facts)
    none = "" if channels else "the search found no channels for it"
    heads = "" if one_is_enough else none or "NVLS needs at least 2 heads"
    told = {name: _no_graph(comm, name) for name in ("Ring", "Tree", "NVLS", "NVLSTree")}
    assert told == {"Ring": none, "Tree": none, "NVLS": heads, "NVLSTree": heads}
