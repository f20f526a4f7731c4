"""Field types for models: a text with a unit in the file, an SI number in the model.

Each carries a JSON schema with examples, so that `netsim schema` helps whoever writes the file.
"""

from functools import partial
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from netsim.errors import shown
from netsim.units import parse_bandwidth, parse_flops, parse_ratio, parse_size, parse_time
from netsim.yamlio.scalars import text_of


def _written(value: object) -> str:
    """The text of a scalar as it stands in the file, so that 2.30 stays 2.30."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return text_of(value)
    raise ValueError(f"expected text or a number, got {shown(value)}")


Bandwidth = Annotated[
    float,
    BeforeValidator(partial(parse_bandwidth, allow_infinite=True)),
    WithJsonSchema({"type": "string", "examples": ["400Gbps", "50GB/s", "inf"]}),
]
"""Bytes per second, more than zero; `inf` for what-ifs."""

Seconds = Annotated[
    float,
    BeforeValidator(parse_time),
    WithJsonSchema({"type": "string", "examples": ["600ns", "2.5us"]}),
]
"""Seconds, zero allowed."""

Bytes = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["64MiB", "8B", 4096]}),
]
"""A number of bytes, at least one."""

Ratio = Annotated[
    float,
    BeforeValidator(parse_ratio),
    WithJsonSchema({"type": ["string", "number"], "examples": [2, "2:1", "50%"]}),
]
"""A ratio, more than zero."""

RatioOrZero = Annotated[
    float,
    BeforeValidator(partial(parse_ratio, allow_zero=True)),
    WithJsonSchema({"type": ["string", "number"], "examples": ["0%", 0.5, "50%"]}),
]
"""A ratio, zero allowed: what is left of a faulty link, a fraction of the work."""

Flops = Annotated[
    float,
    BeforeValidator(parse_flops),
    WithJsonSchema({"type": "string", "examples": ["989TFLOPS", "1.5PFLOP/s"]}),
]
"""Floating-point operations per second."""

Count = Annotated[int, Field(ge=1)]
"""A number of things, at least one."""

Index = Annotated[int, Field(ge=0)]
"""The number of a thing, counted from zero."""

Written = Annotated[
    str,
    BeforeValidator(_written),
    WithJsonSchema({"type": ["string", "number", "boolean"], "examples": ["2.27", 16]}),
]
"""The text of a scalar as it was written: a version such as 2.30, the value of a variable."""
