"""Values back to YAML that reads as the same values: numbers as they were written, texts quoted
where YAML 1.2 or 1.1 would take them for something else.
"""

from typing import Any

import yaml

from netsim.yamlio.scalars import WrittenFloat, WrittenInt, plain_scalar

_TAGS = {bool: "bool", int: "int", WrittenInt: "int", float: "float", WrittenFloat: "float"}


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        usual = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        if kind is not yaml.ScalarNode or not implicit[0]:
            return usual
        try:
            found = plain_scalar(value)
        except ValueError:
            return ""  # no value can be written so
        name = "null" if found is None else _TAGS.get(type(found))
        return usual if name is None else f"tag:yaml.org,2002:{name}"


def _written(dumper: _Dumper, number: WrittenInt | WrittenFloat) -> yaml.ScalarNode:
    name = _TAGS[type(number)]
    return dumper.represent_scalar(f"tag:yaml.org,2002:{name}", number.text)


_Dumper.add_representer(WrittenInt, _written)
_Dumper.add_representer(WrittenFloat, _written)
_Dumper.add_representer(tuple, _Dumper.represent_list)


def dump(data: Any) -> str:
    """A mapping as the text of a YAML file, its keys in their order."""
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
