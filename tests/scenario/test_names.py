"""What people call data types, in files and options."""

import pytest

from netsim.scenario.models import Workload
from netsim.scenario.names import DTYPE_NAMES, DTYPES


@pytest.mark.parametrize(("written", "dtype"), DTYPE_NAMES.items())
def test_types_of_pytorch_are_taken_for_those_of_nccl_tests(written: str, dtype: str) -> None:
    assert dtype in DTYPES
    for spelt in (written, written.upper()):
        made = Workload.model_validate({"collective": "all_reduce", "dtype": spelt})
        assert made.dtype == dtype
