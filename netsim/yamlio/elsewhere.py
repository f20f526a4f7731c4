"""Models of parts that most files lack: their module is imported when a file has such a part."""

from functools import cached_property
from importlib import import_module
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class Elsewhere:
    """Stands in an `Annotated[Any, ...]` for a type of another module.

    What is wrong with a value is told as if the type itself stood there.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    @cached_property
    def kind(self) -> Any:
        """The type."""
        return getattr(import_module(self.module), self.name)

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.kind)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(self._adapter.core_schema)

    def _read(self, value: Any) -> Any:
        return self._adapter.validate_python(value)
