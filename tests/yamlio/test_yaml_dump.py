"""Values written as YAML read as the same values, by the rules that scenario files are read by."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from netsim.yamlio.read import dump, parse_source

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**9), 10**9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=12),
    st.sampled_from(["1e9", "2:1", "no", "on", "0x1F", "~", "007", "2.20", ".inf", "2020-01-01"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), inner, max_size=3)
    ),
)


@pytest.mark.slow
@given(st.dictionaries(st.from_regex(r"k[a-z_.]{1,8}", fullmatch=True), VALUES, min_size=1))
def test_what_is_written_reads_as_the_same(values: dict[str, Any]) -> None:
    again = parse_source(dump(values), "again.yaml").data
    assert again == values
    assert _types(again) == _types(values)


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _types(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_types(one) for one in value]
    return next(kind for kind in (bool, int, float, str, type(None)) if isinstance(value, kind))


@pytest.mark.parametrize("text", ["2.20", "1e9", "0x1F", "007", "1_000", "2:1", "no"])
def test_numbers_and_words_stay_as_they_were_written(text: str) -> None:
    data = parse_source(f"key: {text}\n", "one.yaml").data
    written = dump(data)
    again = parse_source(written, "again.yaml").data["key"]
    assert getattr(again, "text", again) == getattr(data["key"], "text", data["key"])
    if isinstance(data["key"], str):  # a reader by the rules of YAML 1.1 takes it for a text, too
        assert yaml.safe_load(written) == {"key": text}
