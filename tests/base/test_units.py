"""Units are strict, exact, and every refusal says what was expected and how to repair it."""

import contextlib
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.base.units import (
    BINARY,
    LARGEST_SIZE,
    UnitError,
    parse_bandwidth,
    parse_cli_size,
    parse_cli_sizes,
    parse_flops,
    parse_power,
    parse_ratio,
    parse_size,
    parse_time,
    size_steps,
)

A_BANDWIDTH = "expected a bandwidth such as 400Gbps or 50GB/s, got "
A_TIME = "expected a time such as 600ns or 2.5us, got "
A_SIZE = "expected a size such as 64MiB, 64MB or 8B, got "
A_RATIO = "expected a ratio such as 2, 2:1 or 50%, got "


def refusal(parse, value, **flags) -> str:
    with pytest.raises(UnitError) as caught:
        parse(value, **flags)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("400Gbps", 50e9),
        ("400Gb/s", 50e9),
        ("400 Gb/s", 50e9),
        ("400GBps", 400e9),
        ("50GB/s", 50e9),
        ("1.8TB/s", 1.8e12),
        ("1Tbps", 125e9),
        ("1_000Mbps", 125e6),
        ("1e3Mbps", 125e6),
        ("1GiB/s", 2.0**30),
        (".5GB/s", 0.5e9),
        ("8b/s", 1.0),
    ],
)
def test_bandwidths(text, value):
    assert parse_bandwidth(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_power, "700W", 700.0),
        (parse_power, "1.2kW", 1200.0),
        (parse_power, "1000kW", 1e6),
        (parse_flops, "989TFLOPS", 989e12),
        (parse_flops, "1.5PFLOP/s", 1.5e15),
        (parse_time, "2.5us", 2.5e-6),
        (parse_time, "3ms", 3e-3),
    ],
)
def test_other_kinds(parse, text, value):
    assert parse(text) == pytest.approx(value, rel=1e-15)


def test_a_power_has_its_own_units_and_a_largest_value():
    for text in ("1001kW", "700", "1MW", "0W"):
        assert "a power" in refusal(parse_power, text)


@pytest.mark.parametrize(
    ("value", "rest"),
    [
        ("400Gb", "'400Gb' (did you mean 400Gbps?)"),
        ("400gbps", "'400gbps' (did you mean 400Gbps?)"),
        ("400GBPS", "'400GBPS' (did you mean 400GBps?)"),
        ("400Gbit/s", "'400Gbit/s' (did you mean 400Gb/s?)"),
        ("50GB", "'50GB' (did you mean 50GB/s?)"),
        (400, "400 (the unit is missing; did you mean 400Gbps?)"),
        ("400", "'400' (the unit is missing; did you mean 400Gbps?)"),
        ("600ns", "'600ns' (that is a time)"),
        ("8 x", "'8 x'"),
        ("fast", "'fast'"),
        ("", "''"),
        ("-4Gbps", "'-4Gbps' (it cannot be negative)"),
        ("0Gbps", "'0Gbps' (it cannot be zero)"),
        ("1e300TB/s", "'1e300TB/s' (that is too large to be meant)"),
        ("1e9999Gbps", "'1e9999Gbps'"),
        ("inf", "'inf'"),
        ("nan", "'nan'"),
        (True, "true"),
        (None, "nothing"),
        ([400], "a list"),
        ({}, "a mapping"),
    ],
)
def test_refused_bandwidths(value, rest):
    assert refusal(parse_bandwidth, value) == A_BANDWIDTH + rest


def test_zero_and_infinite_bandwidths_only_where_they_mean_something():
    assert parse_bandwidth("0Gbps", allow_zero=True) == 0
    assert parse_bandwidth("inf", allow_infinite=True) == math.inf
    assert parse_bandwidth(math.inf, allow_infinite=True) == math.inf


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("600ns", 6e-7),
        ("2.5us", 2.5e-6),
        ("2.5µs", 2.5e-6),
        ("2.5μs", 2.5e-6),
        ("3 ms", 3e-3),
        ("1s", 1.0),
        ("7ps", 7e-12),
        ("0us", 0.0),
    ],
)
def test_times(text, value):
    assert parse_time(text) == value


@pytest.mark.parametrize(
    ("value", "rest"),
    [
        ("5", "'5' (the unit is missing; did you mean 5us?)"),
        (0, "0 (the unit is missing; did you mean 0us?)"),
        ("5MS", "'5MS' (did you mean 5ms?)"),
        ("5 sec", "'5 sec' (did you mean 5s?)"),
        ("2,5us", "'2,5us' (did you mean 2.5us?)"),
        ("400Gbps", "'400Gbps' (that is a bandwidth)"),
        ("8MiB", "'8MiB' (that is a size)"),
        ("-1us", "'-1us' (it cannot be negative)"),
        ("1e12s", "'1e12s' (that is too large to be meant)"),
    ],
)
def test_refused_times(value, rest):
    assert refusal(parse_time, value) == A_TIME + rest


def test_a_time_of_zero_can_be_refused():
    assert refusal(parse_time, "0us", allow_zero=False) == A_TIME + "'0us' (it cannot be zero)"
    assert refusal(parse_time, "1e-400s", allow_zero=False).endswith(
        "(that is too small to be meant)"
    )


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        ("64MiB", 64 * 2**20),
        ("64MB", 64 * 10**6),
        ("64kB", 64_000),
        ("64KB", 64_000),
        ("8B", 8),
        ("1.5KiB", 1536),
        ("8", 8),
        (8, 8),
        (1e9, 10**9),
        ("0.1GB", 10**8),
        (LARGEST_SIZE, LARGEST_SIZE),
        *((f"1{prefix}B", 2 ** (10 * k)) for k, prefix in enumerate(("", *BINARY))),
        *((f"1{prefix}B", 10 ** (3 * k)) for k, prefix in enumerate(("", *"kMGTP"))),
    ],
)
def test_sizes(value, nbytes):
    size = parse_size(value)
    assert size == nbytes
    assert type(size) is int


@pytest.mark.parametrize(
    ("value", "rest"),
    [
        ("64M", "'64M' (did you mean 64MiB?)"),
        ("64Mb", "'64Mb' (did you mean 64MB?)"),
        ("64mib", "'64mib' (did you mean 64MiB?)"),
        ("12bytes", "'12bytes' (did you mean 12B?)"),
        ("64Mbps", "'64Mbps' (that is a bandwidth)"),
        ("5us", "'5us' (that is a time)"),
        (0, "0 (it cannot be zero)"),
        (-1, "-1 (it cannot be negative)"),
        (1.5, "1.5 (that is not a whole number of bytes)"),
        ("0.3B", "'0.3B' (that is not a whole number of bytes)"),
        (2**61, "2305843009213693952 (that is too large to be meant)"),
        ("1e999", "'1e999' (that is too large to be meant)"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (False, "false"),
    ],
)
def test_refused_sizes(value, rest):
    assert refusal(parse_size, value) == A_SIZE + rest


def test_a_size_of_zero_can_be_allowed():
    assert parse_size("0B", allow_zero=True) == 0


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [("8M", 2**23), ("8m", 2**23), ("1.5G", 3 * 2**29), ("2K", 2048), ("8MB", 8_000_000), ("8", 8)],
)
def test_nccl_tests_sizes(text, nbytes):
    assert parse_cli_size(text) == nbytes


def test_ranges_of_sizes():
    assert parse_cli_sizes("8:64:2") == [8, 16, 32, 64]
    assert parse_cli_sizes("8:60:2") == [8, 16, 32]
    assert parse_cli_sizes("1K:1M:32") == [1024, 32768, 2**20]
    assert parse_cli_sizes("8,1M, 1GiB") == [8, 2**20, 2**30]
    assert size_steps(8, 8, 2) == [8]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "8:32",
            "expected sizes as FROM:TO:FACTOR such as 8:8G:2, "
            "or a list such as 8,1M,1G, got '8:32'",
        ),
        (
            "1K..1G",
            "expected sizes as FROM:TO:FACTOR such as 8:8G:2, "
            "or a list such as 8,1M,1G, got '1K..1G'",
        ),
        ("8:64:x", "expected a whole factor of at least 2, as in 8:8G:2, got 'x'"),
        ("8:64:1", "expected a whole factor of at least 2, got 1"),
        ("4:2:2", "expected a first size from 1 B to the last, 2 B, got 4"),
        ("8,", A_SIZE + "''"),
    ],
)
def test_refused_ranges(text, message):
    assert refusal(parse_cli_sizes, text) == message


@pytest.mark.parametrize(
    ("value", "ratio"),
    [(2, 2.0), ("2", 2.0), ("2:1", 2.0), ("1:2", 0.5), ("50%", 0.5), (0.5, 0.5), ("3 : 2", 1.5)],
)
def test_ratios(value, ratio):
    assert parse_ratio(value) == ratio


@pytest.mark.parametrize(
    ("value", "rest"),
    [
        ("2:0", "'2:0' (it divides by zero)"),
        ("0%", "'0%' (it cannot be zero)"),
        (-1, "-1 (it cannot be negative)"),
        ("1:2:3", "'1:2:3'"),
        ("50:1%", "'50:1%'"),
        ("two", "'two'"),
        (math.inf, "inf"),
        (True, "true"),
    ],
)
def test_refused_ratios(value, rest):
    assert refusal(parse_ratio, value) == A_RATIO + rest


def test_a_ratio_of_zero_can_be_allowed():
    assert parse_ratio("0%", allow_zero=True) == 0


def test_rates_of_arithmetic():
    assert parse_flops("989TFLOPS") == 989e12
    assert parse_flops("1.5PFLOP/s") == 1.5e15
    assert refusal(parse_flops, "989T") == (
        "expected a rate of arithmetic such as 989TFLOPS or 1.5PFLOP/s, got '989T' "
        "(did you mean 989TFLOPS?)"
    )


@pytest.mark.slow
@given(st.one_of(st.text(), st.floats(), st.integers(), st.booleans(), st.none()))
def test_whatever_comes_is_a_number_in_range_or_a_unit_error(value):
    for parse in (parse_bandwidth, parse_time, parse_size, parse_ratio, parse_flops):
        with contextlib.suppress(UnitError):
            assert 0 <= parse(value) < math.inf


def test_unit_errors_survive_the_way_back_from_a_worker():
    error = UnitError("a time", "x", " (that is a size)")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
