"""Traces of PyTorch before 2.3: NCCL's kernels describe nothing, operators have shapes."""

import pytest

from netsim.base.errors import InputError
from netsim.training.recorded.kineto import read_profile, step_of
from tests.training.profiler import Recording

OLD = "ncclKernel_{}_RING_LL_Sum_{}(ncclDevComm*, unsigned long, ncclWork*)"


def traced(tmp_path, kernel: str, operator: str, dims: list, types: list[str]):
    made = Recording(world=4)
    made.event("cpu_op", "c10d::other", 0, 100, args={"Input Dims": [[7]], "Input type": ["float"]})
    made.event("cpu_op", operator, 200, 50, args={"Input Dims": dims, "Input type": types})
    made.kernel(1200, 100, launched=230, name=kernel, stream=20)
    return read_profile(made.write(tmp_path / "t.json"))


@pytest.mark.parametrize(
    ("kernel", "operator", "dims", "types", "said"),
    [
        (
            OLD.format("AllReduce", "float"),
            "record_param_comms",
            [[[1000], [24]], [], []],
            ["TensorList", "", ""],
            ("all_reduce", 4096, "float"),
        ),
        (
            OLD.format("AllReduce", "half"),
            "c10d::allreduce_",
            [[[1024]], []],
            ["TensorList"],
            ("all_reduce", 2048, "half"),
        ),
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)",
            "nccl:all_reduce",
            [[32, 32]],
            ["c10::BFloat16"],
            ("all_reduce", 2048, "bfloat16"),
        ),
        (
            OLD.format("AllGather", "int8_t"),
            "c10d::_allgather_base_",
            [[4096], [1024], []],
            ["c10::Half", "c10::Half"],
            ("all_gather", 8192, "half"),
        ),
        (
            OLD.format("ReduceScatter", "float"),
            "c10d::_reduce_scatter_base_",
            [[256], [1024]],
            ["float", "float"],
            ("reduce_scatter", 4096, "float"),
        ),
        (
            "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t",
            "c10d::alltoall_base_",
            [[64], [64]],
            ["float", "float"],
            ("alltoall", 256, "float"),
        ),
    ],
)
def test_kernel_and_shapes_tell_the_call(tmp_path, kernel, operator, dims, types, said) -> None:
    profile = traced(tmp_path, kernel, operator, dims, types)
    (call,) = profile.calls
    assert (call.description.collective, call.description.nbytes, call.description.dtype) == said
    assert call.description.ranks == (0, 1, 2, 3)
    assert "calls by the shapes of their operators, over all ranks" in step_of(profile, None)[1]


def test_without_shapes_the_trace_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="record_shapes=True tells sizes"):
        traced(tmp_path, OLD.format("AllReduce", "float"), "record_param_comms", [], [])
