"""The roofline beside kernels that were measured alone (tests/bench/kernels.py, on an H100)."""

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from netsim.base.constants import value
from netsim.workloads.setting import BLOCK, Roofline

TABLE = Path(__file__).parents[1] / "data" / "kernels" / "h100_sxm.csv"
# What kernels reach alone, in a graph: products more than in steps, gaps less than in a stream.
ALONE = Roofline(
    {"bfloat16": 989e12, "fp8": 1979e12}, 3350e9, 132, gemm=0.73, narrow={"fp8": 0.66},
    attention=(0.596, 0.563), exponents=value("sm_90.attention.exponents"), kernel=2.3e-6,
)  # fmt: skip
FLASH2 = replace(ALONE, attention=(0.341, 0.325), exponents=value("flash2.exponents"))


def rows(section: str, *kernels: str) -> Iterator[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["section"] == section and row["kernel"] in kernels:
                yield row


def error(found: list[tuple[float, float]]) -> tuple[float, float, int]:
    """Median and 90th percentile of |log| of ours over theirs, and how many there are."""
    ours, theirs = np.array(found).T
    off = np.abs(np.log(ours / theirs))
    return float(np.median(off)), float(np.percentile(off, 90)), len(found)


@pytest.mark.parametrize(
    ("kernel", "median", "ninetieth"),
    [("forward", 0.025, 0.11), ("dgrad", 0.03, 0.09), ("wgrad", 0.025, 0.09),
     ("batched", 0.05, 0.14), ("forward tensor", 0.04, 0.12)],
)  # fmt: skip
def test_products_of_every_shape(kernel: str, median: float, ninetieth: float) -> None:
    found = []
    for row in rows("gemm", kernel):
        m, n, k, batch = (int(row[name]) for name in ("m", "n", "k", "batch"))
        shape = {"dgrad": (m, k, n), "wgrad": (n, k, m)}.get(kernel, (m, n, k))
        if row["dtype"] in ALONE.flops:
            seconds = ALONE.gemm_seconds(*shape, row["dtype"], batch)
            found.append((seconds, float(row["us"]) / 1e6))
    middle, most, count = error(found)
    assert count >= 28
    assert middle <= median
    assert most <= ninetieth


@pytest.mark.parametrize(("kind", "gpu"), [("cudnn", ALONE), ("flash2", FLASH2)])
@pytest.mark.parametrize("backward", [False, True])
def test_attention_of_short_and_long_sequences(kind: str, gpu: Roofline, backward: bool) -> None:
    found = []
    for masked in ("", " causal"):
        for row in rows("attention", f"{kind}{masked}{' backward' * backward}"):
            sequence, head, heads, batch = (int(row[name]) for name in ("m", "n", "k", "batch"))
            keys = (sequence + BLOCK) / 2 if masked else float(sequence)
            flops = (10 if backward else 4) * batch * heads * sequence * keys * head
            seconds = gpu.attention_seconds(flops, width=2 * head, keys=keys, backward=backward)
            found.append((seconds, float(row["us"]) / 1e6))
    middle, most, count = error(found)
    assert count == 19
    assert middle <= 0.04
    assert most <= 0.08


def test_streams_and_what_sums_rows_up() -> None:
    found = [
        (ALONE.stream_seconds(float(row["mbytes"]) * 1e6), float(row["us"]) / 1e6)
        for row in rows("memory", "add", "sum")
        if float(row["mbytes"]) > 50
    ]
    middle, most, count = error(found)
    assert count == 9
    assert middle <= 0.01
    assert most <= 0.1  # a sum of few elements ends in a second kernel


def test_blocks_that_hold_sms_take_what_products_lose_and_little_from_streams() -> None:
    kinds = ("gemm beside copies", "add beside copies", "attention beside copies")
    found = {(row["kernel"], int(row["m"])): float(row["us"]) for row in rows("beside", *kinds)}
    for held in (8, 16, 32):
        left = (132 - held) / 132
        for kernel in ("gemm", "attention"):
            alone, beside = (found[f"{kernel} beside copies", blocks] for blocks in (1, held))
            assert beside / alone == pytest.approx(1 / left, rel=0.15)
        assert found["add beside copies", held] < 1.04 * found["add beside copies", 1]
