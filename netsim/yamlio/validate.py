"""From the values of a source to a model, or to every mistake with its line and column."""

from typing import Any, TypeVar

import pydantic

from netsim.errors import ScenarioErrors
from netsim.yamlio.branches import all_findings
from netsim.yamlio.source import KeyPath, Source

M = TypeVar("M", bound=pydantic.BaseModel)


def validate(model: type[M], source: Source, path: KeyPath = ()) -> M:
    """The values of `source` below `path` as a model; raises all that is wrong with them."""
    values: Any = source.data
    for part in path:
        values = values[part]
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        findings = all_findings(error, model, path)
    errors = [source.error(one.path, one.text, key=one.at_key) for one in findings]
    errors.sort(key=lambda error: (error.source != source.name, error.line or 0, error.column or 0))
    raise errors[0] if len(errors) == 1 else ScenarioErrors(errors)
