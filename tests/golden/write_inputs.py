"""Golden texts of what files may say: keys with their defaults, prices and bills, and what becomes
of published training steps."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from netsim.base.files import preset_folder
from netsim.cli.files import SCHEMAS
from netsim.costs.prices import load_prices
from netsim.measured.index import read_index
from netsim.measured.training import Published, Unstated, published
from netsim.scenario.cells import expand
from netsim.sweep.summary import bill
from netsim.yamlio.read import parse_source
from tests.golden.layout import MOST_LINES, plain_value, significant

Writer = Callable[[], list[str]]
Schema = dict[str, Any]


# **** Keys and their defaults ****


def type_text(schema: Schema) -> str:
    """Return the type of a key: `integer`, `Fabric`, `a or b`, `list of number`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return repr(schema["const"])
    if "enum" in schema:
        return " or ".join(map(repr, schema["enum"]))
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(type_text(part) for part in schema[key]))
    if schema.get("type") == "array":
        return f"list of {type_text(schema['items'])}" if "items" in schema else "list"
    kind = schema.get("type", "anything")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def bounds_text(schema: Schema) -> str:
    """Return the bounds of a number, as `, >= 1`."""
    signs = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    return "".join(f", {sign} {schema[key]:g}" for key, sign in signs.items() if key in schema)


def keys_of(schema: Schema) -> Iterator[str]:
    """Yield a line for each key of a model: its type, its bounds, its default."""
    required = schema.get("required", [])
    for key, value in schema.get("properties", {}).items():
        if key in required:
            default = "required"
        else:
            default = f"default {plain_value(value.get('default')) or 'empty'}"
        text = type_text(value)
        shortened = text if len(text) <= 60 else f"{text[:57]}..."
        yield f"  {key}: {shortened}{bounds_text(value)}; {default}"


def models_of(kind: str) -> dict[str, Schema]:
    """Return the schemas of all models of a kind of file by their names."""
    schema = SCHEMAS[kind].model_json_schema(by_alias=True)
    return {SCHEMAS[kind].__name__: schema, **schema.get("$defs", {})}


def schema_keys(kind: str, part: int, parts: int) -> list[str]:
    """Return the keys of a part of the models that a kind of file has; those of machines, which
    scenarios can override, are in the text of machines."""
    models = models_of(kind)
    with_keys = {name: model for name, model in models.items() if model.get("properties")}
    elsewhere = models_of("machine") if kind != "machine" else {}
    names = [name for name in with_keys if name not in elsewhere]
    chosen = names[part * len(names) // parts : (part + 1) * len(names) // parts]
    lines = [f"Keys of {kind} files with their types, bounds and defaults, part {part + 1}."]
    for name in chosen:
        lines += ["", name, *keys_of(with_keys[name])]
    return lines


# **** Prices ****

WORKLOAD = "{collective: broadcast, algorithm: binomial}"
PRICED = {
    "one host": "machine: dgx-h100",
    "rails": "machine: dgx-h100, nodes: 4, fabric: {kind: rail-optimized}",
    "leaves, 2 to 1": "machine: dgx-a100, nodes: 8, fabric: {kind: leaf-spine, nodes_per_leaf: 4, "
    "oversubscription: 2}",
    "a fat tree": "machine: dgx-h100, nodes: 16, gpus_per_node: 1, nics_per_node: 1, "
    "fabric: {kind: fat-tree, k: 4}",
    "a dragonfly": "machine: gh200-x4, nodes: 36, fabric: {kind: dragonfly}",
    "racks": "machine: gb200-nvl72, nodes: 2, fabric: {kind: rail-optimized}",
    "slow NICs": "machine: dgx-h100, nodes: 4, nic: 100Gbps, fabric: {kind: single-switch}",
}


def prices() -> list[str]:
    """Return the parts with what they cost and draw, and the bills of some clusters."""
    shipped = load_prices()
    lines = ["Prices and watts of parts, and bills of clusters made of them.", ""]
    for kind in ("gpu", "nic", "switch_port", "optic", "cable"):
        for name, part in getattr(shipped, kind).items():
            lines.append(f"{kind} {name}: {part.usd:g} USD, {part.watts:g} W ({part.source})")
    lines += ["", f"written off in {shipped.lifetime_years} years, {shipped.usd_per_kwh} USD/kWh"]
    for name, cluster in PRICED.items():
        text = f"cluster: {{{cluster}}}\nworkload: {WORKLOAD}\nprices: default\n"
        priced = bill(expand(parse_source(text, "priced.yaml"))[0])
        assert priced is not None
        lines += [
            "",
            f"{name}: {cluster}",
            f"  {priced.switches} switches, {priced.cables} cables, {priced.nics} NICs",
            f"  {priced.gpus} GPUs: {priced.cost_usd:.0f} USD, {priced.power_w:.0f} W, "
            f"{priced.usd_per_hour:.2f} USD an hour",
        ]
    return lines


# **** Published steps ****


def published_line(step: Published) -> list[str]:
    """Return what a published step becomes: its figures and its scenario."""
    seconds = significant(step.seconds, 4)
    lines = [f"{step.id}: {step.gpus} GPUs of {step.machine}, {step.precision}, {seconds} s"]
    lines.append(f"  cluster: {plain_value(step.data['cluster'])}")
    work = step.data["workload"]
    plain = {key: value for key, value in work.items() if not isinstance(value, dict)}
    lines.append(f"  workload: {plain_value(plain)}")
    parts = sorted(work.keys() - plain.keys())
    lines += [f"  {key}: {plain_value(work[key])}" for key in parts]
    return [*lines, *(f"  note: {note}" for note in step.notes)]


def published_steps(framework: str) -> list[str]:
    """Return the first published step of each machine and family of models of a framework."""
    lines = [f"Published steps of {framework} as scenarios: the first of each machine and family."]
    seen = set()
    for entry in read_index(preset_folder("scenarios") / "measured" / "training.yaml", ()):
        try:
            step = published(entry)
        except Unstated:
            continue
        key = (step.machine, step.family)
        if step.framework == framework and key not in seen:
            seen.add(key)
            added = ["", *published_line(step)]
            if len(lines) + len(added) <= MOST_LINES:
                lines += added
    return lines


def refused_steps() -> list[str]:
    """Return how many published runs become no scenario, by reason."""
    reasons: dict[str, list[str]] = {}
    for entry in read_index(preset_folder("scenarios") / "measured" / "training.yaml", ()):
        try:
            published(entry)
        except Unstated as error:
            reason = str(error).partition(":")[0]
            reasons.setdefault(reason, []).append(entry.id)
    lines = ["Published runs that become no scenario: how many for each reason, and the first."]
    return [*lines, "", *(f"{len(ids)}: {why} ({ids[0]})" for why, ids in reasons.items())]


FRAMEWORKS = {
    "mosaic": "MosaicML",
    "titan": "TorchTitan",
    "mlperf": "MLPerf (NeMo)",
    "nemo": "NeMo",
}
PARTS = {"scenario": 4, "machine": 1}
WRITERS: dict[str, Writer] = {
    **{
        f"inputs/{kind}-keys-{part + 1}": partial(schema_keys, kind, part, parts)
        for kind, parts in PARTS.items()
        for part in range(parts)
    },
    "inputs/prices": prices,
    **{f"inputs/published-{name}": partial(published_steps, of) for name, of in FRAMEWORKS.items()},
    "inputs/published-refused": refused_steps,
}
