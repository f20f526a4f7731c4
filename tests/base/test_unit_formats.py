"""Quantities print for people, and what was printed reads back."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netsim.base.units import (
    LARGEST_SIZE,
    format_bandwidth,
    format_size,
    format_time,
    parse_bandwidth,
    parse_size,
    parse_time,
)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (8, "8 B"),
        (1000, "1 kB"),
        (1024, "1 KiB"),
        (64 * 2**20, "64 MiB"),
        (3 * 2**29, "1.5 GiB"),
        (10**6, "1 MB"),
        (12345, "12345 B"),
        (2**60, "1 EiB"),
    ],
)
def test_printed_sizes(nbytes, text):
    assert format_size(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (2.5e-6, "2.5 us"),
        (6e-7, "600 ns"),
        (1.23456e-3, "1.235 ms"),
        (999.96e-6, "1 ms"),
        (1e-13, "0.1 ps"),
        (12345.0, "12345 s"),
        (math.inf, "inf"),
    ],
)
def test_printed_times(seconds, text):
    assert format_time(seconds) == text


def test_printed_bandwidths():
    assert format_bandwidth(50e9) == "50 GB/s"
    assert format_bandwidth(50e9, bits=True) == "400 Gb/s"
    assert format_bandwidth(0.0) == "0 B/s"
    assert format_bandwidth(450.7e9) == "450.7 GB/s"


@given(st.integers(1, LARGEST_SIZE))
@example(LARGEST_SIZE)
def test_a_printed_size_reads_back_exactly(nbytes):
    assert parse_size(format_size(nbytes)) == nbytes


@given(st.floats(1e-12, 1e6))
def test_a_printed_time_reads_back_to_four_digits(seconds):
    assert parse_time(format_time(seconds)) == pytest.approx(seconds, rel=5.1e-4)


@given(st.floats(1, 1e15), st.booleans())
def test_a_printed_bandwidth_reads_back_to_four_digits(bandwidth, bits):
    text = format_bandwidth(bandwidth, bits=bits)
    assert parse_bandwidth(text) == pytest.approx(bandwidth, rel=5.1e-4)
