"""The names of collectives and data types in scenarios, with their aliases."""

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from netsim.base.errors import shown, suggest
from netsim.collectives.collective import NAMES

# Bytes of an element of each data type, by the names of nccl-tests.
DTYPES = {
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "half": 2, "float": 4,
    "double": 8, "bfloat16": 2, "f8e4m3": 1, "f8e5m2": 1,
}  # fmt: skip

# The names of nccl-tests for names of data types in PyTorch and in logs.
DTYPE_NAMES = {
    "fp8_e4m3": "f8e4m3", "fp8_e5m2": "f8e5m2", "fp16": "half", "float16": "half",
    "bf16": "bfloat16", "fp32": "float", "float32": "float", "fp64": "double", "float64": "double",
}  # fmt: skip

_SHORT = {"ar": "all_reduce", "ag": "all_gather", "rs": "reduce_scatter", "a2a": "alltoall"}
_FOLDED = {name.replace("_", ""): name for name in NAMES} | _SHORT


def collective_name(value: object) -> str:
    """Return the name of a collective as nccl-tests writes it, from any usual spelling."""
    if isinstance(value, str):
        name = _FOLDED.get(value.lower().replace("_", "").replace("-", "").removesuffix("perf"))
        if name:
            return name
    names = ", ".join(NAMES)
    hint = suggest(value, NAMES) if isinstance(value, str) else ""
    raise ValueError(f"expected one of {names}, got {shown(value)}{hint}")


def dtype_name(value: object) -> object:
    """Return the name of a data type as nccl-tests writes it, from any usual name."""
    return DTYPE_NAMES.get(value.lower(), value) if isinstance(value, str) else value


CollectiveName = Annotated[
    str, BeforeValidator(collective_name), WithJsonSchema({"type": "string", "enum": list(NAMES)})
]
