"""The common ground of everything that is read from a file: strict, closed, frozen models."""

from typing import Annotated, TypeVar

import pydantic

T = TypeVar("T")


class Model(pydantic.BaseModel):
    """A mapping in a file: unknown keys are refused and no value is converted silently.

    What validates it is made with that of the model around it; `defer_build=False` is for those
    that are also written out alone. A list in a file is declared as `ListOf[X]`; a bare tuple would
    refuse it.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


ListOf = Annotated[tuple[T, ...], pydantic.Strict(False)]
"""A list in the file, a tuple in the model; its entries stay strict."""


class FieldError(ValueError):
    """For validators of whole models: what is wrong, and the path below to the field to blame."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message, *path)
        self.message = message
        self.path = path

    def __str__(self) -> str:
        return self.message
