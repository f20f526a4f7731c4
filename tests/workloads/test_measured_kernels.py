"""The roofline beside kernels that were measured alone (tests/bench/kernels.py).

Its figures are those that an H100 shows; an H200 in another host was held against them after."""

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from netsim.base.constants import value
from netsim.workloads.kernels import CASTS, LinearLayer, forward
from netsim.workloads.setting import BLOCK, Roofline

TABLES = Path(__file__).parents[1] / "data" / "kernels"
MEMORY = {"h100_sxm": 3350e9, "h200": 4800e9}
# What kernels reach alone, in a graph: products more than in steps, gaps less than in a stream.
ALONE = Roofline(
    {"bfloat16": 989e12, "fp8": 1979e12},
    3350e9,
    132,
    gemm=0.73,
    narrow={"fp8": 0.66},
    attention=(0.596, 0.563),
    exponents=value("sm_90.attention.exponents"),
    kernel=2.3e-6,
)
FLASH2 = replace(ALONE, attention=(0.341, 0.325), exponents=value("flash2.exponents"))
every_gpu = pytest.mark.parametrize("name", MEMORY)


def rows(name: str, section: str, *kernels: str) -> Iterator[dict[str, str]]:
    with (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["section"] == section and row["kernel"] in kernels:
                yield row


def error(found: list[tuple[float, float]]) -> tuple[float, float, int]:
    """Median and 90th percentile of |log| of ours over theirs, and how many there are."""
    ours, theirs = np.array(found).T
    off = np.abs(np.log(ours / theirs))
    return float(np.median(off)), float(np.percentile(off, 90)), len(found)


@every_gpu
@pytest.mark.parametrize(
    ("kernel", "median", "ninetieth"),
    [
        ("forward", 0.04, 0.11),
        ("dgrad", 0.03, 0.09),
        ("wgrad", 0.035, 0.1),
        ("batched", 0.065, 0.16),
        ("forward tensor", 0.05, 0.17),
    ],
)
def test_products_of_every_shape(name: str, kernel: str, median: float, ninetieth: float) -> None:
    found, gpu = [], replace(ALONE, bandwidth=MEMORY[name])
    for row in rows(name, "gemm", kernel):
        m, n, k, batch = (int(row[one]) for one in ("m", "n", "k", "batch"))
        shape = {"dgrad": (m, k, n), "wgrad": (n, k, m)}.get(kernel, (m, n, k))
        if row["dtype"] in gpu.flops:
            seconds = gpu.gemm_seconds(*shape, row["dtype"], batch)
            found.append((seconds, float(row["us"]) / 1e6))
    middle, most, count = error(found)
    assert count >= 28
    assert middle <= median
    assert most <= ninetieth


@every_gpu
@pytest.mark.parametrize(("kind", "gpu"), [("cudnn", ALONE), ("flash2", FLASH2)])
@pytest.mark.parametrize("backward", [False, True])
def test_attention_of_short_and_long_sequences(name, kind: str, gpu, backward: bool) -> None:
    found = []
    for masked in ("", " causal"):
        for row in rows(name, "attention", f"{kind}{masked}{' backward' * backward}"):
            sequence, head, heads, batch = (int(row[one]) for one in ("m", "n", "k", "batch"))
            keys = (sequence + BLOCK) / 2 if masked else float(sequence)
            flops = (10 if backward else 4) * batch * heads * sequence * keys * head
            seconds = gpu.attention_seconds(flops, width=2 * head, keys=keys, backward=backward)
            found.append((seconds, float(row["us"]) / 1e6))
    middle, most, count = error(found)
    assert count == 19
    assert middle <= 0.04
    assert most <= 0.13


@every_gpu
def test_streams_and_what_sums_rows_up(name: str) -> None:
    gpu = replace(ALONE, bandwidth=MEMORY[name])
    found = [
        (gpu.stream_seconds(float(row["mbytes"]) * 1e6), float(row["us"]) / 1e6)
        for row in rows(name, "memory", "add", "sum")
        if float(row["mbytes"]) > 50
    ]
    middle, most, count = error(found)
    assert count == 9
    assert middle <= 0.02
    assert most <= 0.15  # a sum of few elements ends in a second kernel


def test_products_in_parts() -> None:
    """Parts of rows one after the other, as tensor parallelism gathers them."""
    found = []
    for row in rows("h100_parts", "parts", "one stream"):
        m, n, k, parts = (int(row[one]) for one in ("m", "n", "k", "batch"))
        seconds = forward(ALONE, row["dtype"], [LinearLayer(m, k, n)], parts)
        found.append((seconds, float(row["us"]) / 1e6))
    middle, most, count = error(found)
    assert count == 24
    assert middle <= 0.06
    assert most <= 0.16


def test_casts_to_fp8_move_what_is_told() -> None:
    """As compiled code does it: as it lies and turned, with the scale of the tensor or of rows; a
    tensor's largest element may be found by what made it."""
    found = []
    for scaling in ("tensor", "row"):
        for row in rows("h100_parts", "cast", f"{scaling} both"):
            moved = CASTS[scaling][1] * int(row["m"]) * int(row["n"])
            found.append((ALONE.stream_seconds(moved), float(row["us"]) / 1e6))
    middle, most, count = error(found)
    assert count == 8
    assert middle <= 0.05
    assert most <= 0.1


def test_blocks_that_hold_sms_take_what_products_lose_and_little_from_streams() -> None:
    kinds = ("gemm beside copies", "add beside copies", "attention beside copies")
    found = {
        (row["kernel"], int(row["m"])): float(row["us"])
        for row in rows("h100_sxm", "beside", *kinds)
    }
    for held in (8, 16, 32):
        left = (132 - held) / 132
        for kernel in ("gemm", "attention"):
            alone, beside = (found[f"{kernel} beside copies", blocks] for blocks in (1, held))
            assert beside / alone == pytest.approx(1 / left, rel=0.15)
        assert found["add beside copies", held] < 1.04 * found["add beside copies", 1]
