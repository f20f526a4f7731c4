"""The different ones among values, as numpy finds them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netsim.base.memo import different


@pytest.mark.slow
@given(st.lists(st.integers(-5, 5)))
def test_each_value_once_and_in_order(values: list[int]) -> None:
    assert different(np.array(values, np.int64)).tolist() == sorted(set(values))


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float64])
def test_kinds_and_tables_stay_as_numpy_has_them(dtype: type) -> None:
    values = np.array([[3, 0, 3], [1, 0, 2]]).astype(dtype)
    found, usual = different(values), np.unique(values)
    assert found.dtype == usual.dtype
    assert found.tolist() == usual.tolist()
