"""Published training throughputs beside simulated steps: entries become scenarios by written rules.

An entry states a model, GPUs, a layout, and what was reached: `step_time_s`, or tokens a second and
GPU. Frameworks are told by their sources. Rules below say what stands for what is not stated; each
use of one is noted. An entry that no rule makes a scenario of says why."""

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, field
from functools import cached_property
from math import log
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, PackageLoader

from netsim.base.constants import replaced
from netsim.base.errors import InputError, NetsimError
from netsim.base.files import LARGEST_FILE, preset_folder
from netsim.base.processes import Processes
from netsim.base.startup import at, worked
from netsim.base.values import dataclass, grouped
from netsim.measured.compare import error_figures, weights_of
from netsim.measured.index import Entry, read_index
from netsim.scenario.cells import expand
from netsim.topology.load import load_machine
from netsim.training.resolve import resolve_step
from netsim.training.run import folded_step
from netsim.workloads.model import MODELS
from netsim.yamlio.read import Source

Values = dict[str, Any]

_FILE = Path(__file__).with_name("training.toml")
_TOLD: Mapping[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
MACHINES: Sequence[tuple[str, str, Values]] = _TOLD["patterns"]["machines"]
NAMED: Sequence[tuple[str, str]] = _TOLD["patterns"]["models"]


class Unstated(InputError):
    """An entry that no scenario can be made of, and why."""


@dataclass(frozen=True)
class Published:
    """One entry as a scenario, with what was reached, and what was assumed."""

    id: str
    framework: str
    machine: str
    generation: str
    family: str
    precision: str
    gpus: int
    seconds: float
    data: Values
    notes: tuple[str, ...]

    @property
    def group(self) -> str:
        """What is left out together, and weighs as much as any other."""
        return f"{self.framework}, {self.generation}"

    @property
    def told(self) -> str:
        """Whose it is, and the power of its GPUs where that is their own."""
        changed = [
            one["machine"].get("gpu", {}) for one in self.data["cluster"].get("overrides", ())
        ]
        return ", ".join([self.framework, *(gpu["power"] for gpu in changed if "power" in gpu)])

    @property
    def work(self) -> Values:
        """The workload of the scenario."""
        work: Values = self.data["workload"]
        return work

    @property
    def rate(self) -> float:
        """Tokens a second and GPU."""
        return float(self.work["batch"] * self.work["sequence"] / (self.seconds * self.gpus))


@dataclass
class _Rules:
    entry: Entry
    notes: list[str] = field(default_factory=list)

    def text(self, *path: str) -> str:
        """A value as text, of several in one cell the first; empty where it is not stated."""
        found = self.entry.text(*path).split("(")[0].strip()
        unstated = ("none", "n/a", "null", "see section in the source")
        return "" if found.casefold() in unstated else found

    def number(self, *path: str) -> float | None:
        match = re.match(r"\d+(\.\d+)?", self.text(*path).replace(",", ""))
        return float(match.group()) if match else None

    def count(self, *path: str, usual: int | None = None) -> int:
        found = self.number(*path)
        if found is not None:
            return int(found)
        if usual is None:
            raise Unstated(f"{'.'.join(path)} is not stated")
        return usual

    def degree(self, axis: str) -> int:
        return max(1, self.count("parallelism", axis, usual=1))

    @cached_property
    def framework(self) -> str:
        source = self.entry.text("source")
        for part, name in _TOLD["frameworks"].items():
            if part in source:
                return str(name)
        return "TorchTitan" if "torchtitan" in self.entry.text("techniques") else "other"

    @cached_property
    def machine(self) -> tuple[str, Values]:
        name = self.entry.text("accelerator")
        for pattern, machine, figures in MACHINES:
            if re.search(pattern, name, re.IGNORECASE):
                if not machine:
                    raise Unstated(f"{name} is no GPU that kernels are known of")
                return machine, figures
        raise Unstated(f"no machine has {name}")

    @cached_property
    def gpus(self) -> int:
        return self.count("accelerators")

    @cached_property
    def sequence(self) -> int:
        return self.count("seq_len")

    def cluster(self) -> Values:
        """Machines; NVLink domains of several hosts are divided evenly."""
        name, figures = self.machine
        count = load_machine(name).gpu.count
        each = min(self.count("per_node", usual=count), self.gpus, count)
        nodes = -(-self.gpus // each)
        found: Values = {"machine": name, "nodes": nodes}
        if each != count:
            found["gpus_per_node"] = each
        changed: Values = {"gpu": figures} if figures else {}
        up = load_machine(name).scale_up
        if up and 1 < up.hosts < nodes:
            domains = -(-nodes // up.hosts)
            while nodes % domains:
                domains += 1
            changed["scale_up"] = {"hosts": nodes // domains}
        if changed:
            found["overrides"] = [{"machine": changed}]
        return found

    def model(self) -> tuple[Any, str]:
        """The model, and the family it is of."""
        name = self.entry.text("model")
        if size := re.search(r"MPT (\d+\w)", name, re.IGNORECASE):
            return self.mpt(size.group(1).lower()), "MPT"
        if re.search(r"GPT-3 175B", name, re.IGNORECASE):
            return {**_TOLD["gpt3"], "sequence": self.sequence}, "GPT-3"
        for pattern, known in NAMED:
            if re.search(pattern, name, re.IGNORECASE) and known in MODELS:
                more = f"{known}-mtp"
                whole = more in MODELS and "w/o MTP" not in name
                return more if whole else known, _TOLD["families"].get(known, known)
        raise Unstated(f"the layers of {name} are not among those that are simulated")

    def mpt(self, size: str) -> Values:
        layers, hidden, heads = _TOLD["mpt"].get(size, (0, 0, 0))
        layers = self.count("layers", usual=layers)
        if not layers:
            raise Unstated(f"layers and width of MPT {size} are not stated")
        hidden = self.count("hidden", usual=hidden)
        return {
            "layers": layers,
            "hidden": hidden,
            "heads": self.count("heads", usual=heads),
            "ffn": 4 * hidden,
            "vocabulary": 50368,
            "sequence": self.sequence,
            "gated": False,
            "tied": True,
            "positions": self.sequence,
        }

    def seconds(self) -> float:
        """The time of a step that was reached."""
        stated = self.number("step_time_s")
        if stated:
            return stated
        rate = self.number("tokens_per_s_per_accelerator")
        if not rate:
            raise Unstated("neither the time of a step nor tokens a second are stated")
        return self.batch * self.sequence / (rate * self.gpus)

    @cached_property
    def batch(self) -> int:
        stated = self.number("global_batch")
        if stated:
            return int(stated)
        local = self.count("local_batch", usual=0) or self.count("micro_batch", usual=0)
        if not local:
            raise Unstated("the batch is not stated")
        return local * self.replicas

    @cached_property
    def replicas(self) -> int:
        each = self.degree("tp") * self.degree("pp") * self.degree("cp")
        if each > self.gpus:
            raise Unstated(f"tp x pp x cp is {each}, on {self.gpus} GPUs")
        return self.gpus // each


# What each framework does that its users do not state, as its code has it.


def _mosaic(r: _Rules) -> Values:
    """LLM Foundry: FSDP of a block a unit with 16-bit reduction, FlashAttention (2 since the H100),
    fused cross entropy, non-reentrant checkpoints of whole blocks."""
    checkpoints = r.text("activation_checkpointing").casefold() == "true"
    sharding = r.text("parallelism", "sharding")
    r.notes.append("FSDP units of a block, gradients reduced in 16 bits (its benchmark's PURE)")
    return {
        "dtype": "fp8" if "fp8" in r.text("precision") else "bfloat16",
        "micro_batch": r.count("micro_batch"),
        "attention": "unpadded",
        "elementwise": "eager",
        "loss": "kernel",
        "optimizer": "adam-eager",
        "recompute": "non-reentrant" if checkpoints else "none",
        "parallelism": {"data": "fsdp"},
        "replicas": {"reshard": sharding != "SHARD_GRAD_OP"},
    }


def _titan(r: _Rules) -> Values:
    """TorchTitan: FSDP2 that reduces in fp32, FlashAttention-2, loss in fp32 op by op, as was Adam
    in 2024; without a compiler all is eager. Pipelines have as many micro-batches as stages."""
    told, precision = r.text("techniques"), r.text("precision")
    narrow, pp = "float8" in precision, r.degree("pp")
    work: Values = {
        "dtype": "fp8" if narrow else "bfloat16",
        "attention": "flash2",
        "loss": "eager",
        "projections": "apart",
        "elementwise": "fused" if re.search("compile|SAC|AsyncTP", told) else "eager",
        "recompute": "non-reentrant" if "full AC" in told else "ops",
    }
    if "202412" in r.entry.text("source"):
        work["optimizer"] = "adam-eager"
    if narrow:
        work["scaling"] = "row" if "rowwise" in precision else "tensor"
    by_tensor = narrow and work["scaling"] == "tensor"
    local = r.batch // r.replicas
    work["micro_batch"] = max(1, local // pp) if pp > 1 else local
    if pp > 1:
        r.notes.append("as many micro-batches as stages")
        work["pipeline"] = {"chunks": 2 if "Interleaved" in told else 1}
    async_tp = re.search("async ?TP", told, re.IGNORECASE)
    work["parallelism"] = {
        "data": "fsdp2",
        "context": "all_gather",
        "sequence_parallel": True,
        "tensor_overlap": "pipelined" if async_tp else "none",
    }
    r.notes.append("weights gathered in FP8 where scales are of tensors, gradients reduced in fp32")
    work["replicas"] = {
        "gradient_dtype": "float",
        "reshard": pp == 1,
        "no_sync": True,
        "gather": "fp8" if by_tensor else "weights",
    }
    return work


def _megatron(r: _Rules) -> Values:
    """Megatron Core: distributed optimizer whose exchanges overlap, tensor parallelism with
    sequence parallelism and user buffers, interleaved pipelines."""
    chunks, pp = r.degree("vp"), r.degree("pp")
    return {
        "micro_batch": r.count("parallelism", "micro_batch", usual=r.count("micro_batch", usual=1)),
        "parallelism": {
            "data": "distributed-optimizer",
            "sequence_parallel": r.degree("tp") > 1,
            "tensor_overlap": "pipelined",
            "expert_tensor": False,
            "dispatcher": "deduplicated",
        },
        "pipeline": {"chunks": chunks if pp > 1 else 1},
        "replicas": {"overlap_gather": True, "gradient_dtype": "bfloat16"},
    }


def _mlperf(r: _Rules) -> Values:
    """NVIDIA's submissions: FP8 with delayed scaling, weights gathered in FP8 since v4.0, twelve
    chunks a stage if none are stated, FlashAttention 1.0.5 in v3.0, as their configurations say."""
    work, source = _megatron(r), r.entry.text("source")
    pp = r.degree("pp")
    if not r.text("parallelism", "vp") and pp > 1 and "GPT-3" in r.entry.text("model"):
        work["pipeline"]["chunks"] = min(12, 96 // pp)
        r.notes.append("twelve chunks a stage")
    if not r.text("precision"):
        ampere = "a100" in r.entry.text("accelerator").casefold()
        work["dtype"] = "bfloat16" if ampere else "fp8"
        r.notes.append(f"dtype {work['dtype']}")
    if "results_v3.0" in source:
        work["attention"] = "flash2"
        r.notes.append("FlashAttention 1.0.5, told as 2")
    elif "results_v3.1" not in source and work.get("dtype") == "fp8":
        work["replicas"]["gather"] = "fp8"
    return work


def _nemo(r: _Rules) -> Values:
    """NVIDIA's NeMo tables (Megatron-Bridge's recipes): FP8 by tensors, gathered in FP8."""
    work = _megatron(r)
    precision = r.text("precision")
    if not precision:
        r.notes.append("FP8 scaled by tensors: the first figure of a cell")
        precision = "FP8-CS"
    told = precision.casefold()
    dtypes = _TOLD["patterns"]["dtypes"]
    work["dtype"] = next((dtype for part, dtype in dtypes if re.search(part, told)), "")
    if not work["dtype"]:
        raise Unstated(f"{precision} is no precision that is known")
    if work["dtype"] == "fp8":
        work["scaling"] = "tensor"
    if work["dtype"] != "bfloat16":
        work["replicas"]["gather"] = "fp8"
    if r.degree("fsdp") > 1:
        work["parallelism"]["data"] = "fsdp2"
        work["replicas"] = {"gradient_dtype": "bfloat16", "no_sync": True}
        del work["parallelism"]["expert_tensor"], work["parallelism"]["dispatcher"]
    _recipe(r, work)
    if re.search("lora", r.entry.text("phase"), re.IGNORECASE):
        raise Unstated("LoRA trains adapters, which are not simulated")
    return work


BESIDE_OTHERS = 26.06  # release since which recipes exchange tokens beside another micro-batch
# Where tokens go to each of their experts (dispatcher alltoall), and what drops tokens does so too.
ALL_TO_ALL = (
    (r"gpt.?oss", r"dgx-h100|dgx-b200|gb200"),
    (r"qwen3.?235", r"dgx-h100|dgx-b200|hgx-b300"),
    (r"tokendrop", r".*"),
)


def _recipe(r: _Rules, work: Values) -> None:
    """What Megatron-Bridge's recipe of a model and machine adds, by release."""
    release, model = r.number("release") or 0.0, r.entry.text("model").casefold()
    newer = release >= BESIDE_OTHERS and work["dtype"] in ("mxfp8", "nvfp4")
    across = (
        "deepseek" in model and r.machine[0] == "dgx-b200" and r.degree("ep") > r.count("per_node")
    )
    if "qwen3_235" in model and r.machine[0] == "dgx-h100":
        across, work["parallelism"]["tensor_overlap"] = True, "none"
    if r.degree("ep") > 1 and (newer or across):
        work["parallelism"]["expert_overlap"] = True
        r.notes.append("tokens travel beside another micro-batch")
    for pattern, machines in ALL_TO_ALL:
        if re.search(pattern, model) and re.search(machines, r.machine[0]) and not newer:
            work["parallelism"]["dispatcher"] = "alltoall"
            r.notes.append("tokens go to each of their experts")
    if newer and ("oss" not in model or r.machine[0] != "hgx-b300"):
        work["experts"] = "fused"
        r.notes.append("products of experts do what lies between them")
    if newer:
        return
    for pattern, machines, modules in _TOLD["patterns"]["recomputed"]:
        if re.search(pattern, model) and re.search(machines, r.machine[0]):
            work["recompute"] = modules
            r.notes.append(f"recompute {', '.join(modules)}")


RULES: dict[str, Callable[[_Rules], Values]] = {
    "MosaicML": _mosaic,
    "TorchTitan": _titan,
    "MLPerf (NeMo)": _mlperf,
    "NeMo": _nemo,
}


def published(entry: Entry) -> Published:
    """An entry as a scenario; `Unstated` where there is none."""
    r = _Rules(entry)
    name, _ = r.machine
    if entry.text("duplicate_of"):
        raise Unstated(f"again: {entry.text('duplicate_of')}")
    if not (r.text("step_time_s") or r.text("tokens_per_s_per_accelerator")):
        raise Unstated("nothing but the time of a whole run is stated")
    if r.framework not in RULES:
        raise Unstated("no rules for its framework")
    if r.framework == "MLPerf (NeMo)" and not isinstance(entry.values.get("parallelism"), Mapping):
        raise Unstated("its degrees of parallelism are not stated")
    model, family = r.model()
    work = RULES[r.framework](r)
    work["parallelism"] |= {axis: r.degree(axis) for axis in ("tp", "pp", "cp", "ep")}
    _divided(r, work, model)
    work |= {"model": model, "batch": r.batch, "sequence": r.sequence, "allow_oom": True}
    data = {"cluster": r.cluster(), "workload": work}
    generation = _TOLD["generations"].get(load_machine(name).gpu.arch, load_machine(name).gpu.arch)
    return Published(
        entry.id,
        r.framework,
        name,
        generation,
        family,
        work.get("dtype", "bfloat16"),
        r.gpus,
        r.seconds(),
        data,
        tuple(r.notes),
    )


def _divided(r: _Rules, work: Values, model: Any) -> None:
    """Layers over stages where they are not even: embedding and loss count as one each, or the last
    stage has fewer; and experts over no more ranks than replicas."""
    parallel, layers = work["parallelism"], MODELS[model].layers if isinstance(model, str) else 0
    replicas = r.replicas
    parts = parallel["pp"] * work.get("pipeline", {}).get("chunks", 1)
    if isinstance(layers, int) and layers % parts:
        each = -(-layers // parts)
        stages = [each] * (parts - 1) + [layers - each * (parts - 1)]
        if (layers + 2) % parts == 0:
            stages = [each - 1, *[each] * (parts - 2), each - 1]
        if min(stages) < 0 or sum(stages) != layers:
            raise Unstated(f"{layers} layers in {parts} parts are not stated")
        work["pipeline"] = {**work.get("pipeline", {}), "stages": stages}
        r.notes.append("layers by stage as Megatron divides them")
    if parallel["ep"] > replicas:
        r.notes.append(f"ep {parallel['ep']} over tp and dp, told as {replicas} over dp")
        parallel["ep"] = replicas


def published_like(machine: str, work: Mapping[str, Any]) -> list[Published]:
    """Published steps on a machine that train the model of a workload on sequences of its length,
    each with its own batch and layout."""
    found = []
    for entry in read_index(preset_folder("scenarios") / "measured" / "training.yaml", ()):
        with suppress(Unstated):
            found.append(published(entry))
    asked = _trained(work)
    return [one for one in found if one.machine == machine and _trained(one.work) == asked]


def _trained(work: Mapping[str, Any]) -> tuple[Any, ...]:
    given = work["model"]
    figures = asdict(MODELS[given]) if given in [*MODELS] else dict(given)
    sequence = work.get("sequence") or figures.get("sequence")
    return (*(figures.get(name) for name in ("layers", "hidden", "heads", "experts")), sequence)


# Every published step beside its simulation; groups of framework and generation weigh equally.


@dataclass(frozen=True)
class ComparedStep:
    """A published step and its simulation."""

    published: Published
    simulated: float
    mfu: float

    @property
    def log_ratio(self) -> float:
        """Of simulated over published time."""
        return log(self.simulated / self.published.seconds)

    @property
    def group(self) -> str:
        """What is left out together, and weighs as much as any other."""
        return self.published.group


@dataclass(frozen=True)
class Steps:
    """All steps of an index, and why others are not simulated, by id."""

    compared: tuple[ComparedStep, ...]
    failed: Mapping[str, str]
    missing: int = 0
    left_out: tuple[ComparedStep, ...] = ()  # each without what its own group says of constants
    without: tuple[str, ...] = ()  # what constants then are

    def json(self) -> str:
        """Every step, and the errors of the whole and of its groups."""
        steps = [
            {
                "id": one.published.id,
                "group": one.group,
                "machine": one.published.machine,
                "family": one.published.family,
                "precision": one.published.precision,
                "gpus": one.published.gpus,
                "published_s": one.published.seconds,
                "simulated_s": one.simulated,
                "mfu": one.mfu,
                "assumed": one.published.notes,
            }
            for one in self.compared
        ]
        groups = {name: asdict(error(some)) for name, some in by(self.compared, "group").items()}
        whole = asdict(error(self.compared)) if self.compared else {}
        values = {"steps": steps, "all": whole, "groups": groups, "failed": dict(self.failed)}
        if self.left_out:
            values["left_out"] = {one.published.id: one.simulated for one in self.left_out}
            values["all_left_out"] = asdict(error(self.left_out))
            values["without"] = self.without
        return json.dumps(values, indent=1) + "\n"


@dataclass(frozen=True)
class StepError:
    """How far simulated steps are from published ones, each group of which weighs as much."""

    steps: int
    median: float
    p90: float
    bias: float


def error(some: Sequence[ComparedStep]) -> StepError:
    """The error of some steps, at least one."""
    ratios, groups = [one.log_ratio for one in some], [one.group for one in some]
    return StepError(len(some), *error_figures(ratios, weights_of(groups)))


def by(some: Sequence[ComparedStep], key: str) -> dict[str, list[ComparedStep]]:
    """Steps by group, or by what is published of them; GPUs in powers of two."""
    if key != "gpus":
        return dict(sorted(grouped(some, lambda one: str(getattr(one.published, key))).items()))
    ordered = sorted(some, key=lambda one: one.published.gpus)
    powers = grouped(ordered, lambda one: (one.published.gpus - 1).bit_length())
    return {f"up to {1 << power} GPUs": steps for power, steps in powers.items()}


def compared(one: Published, values: Mapping[str, float] = MappingProxyType({})) -> ComparedStep:
    """Simulate the scenario of an entry, perhaps with other values of some constants."""
    with replaced(values):
        step = folded_step(resolve_step(expand(Source(one.id, one.data))[0]))
    return ComparedStep(one, step.seconds, step.mfu)


Answer = tuple[ComparedStep, ComparedStep] | str  # also with other values; or why there is none


def _answer(entry: Entry, values: Mapping[str, float]) -> Answer:
    try:
        first = compared(one := published(entry))
        return first, compared(one, values) if values else first
    except NetsimError as problem:
        return " ".join(str(problem).split())


def is_published(path: Path) -> bool:
    """Whether an index is one of training steps, by the first keys of its entries."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = file.read(LARGEST_FILE).splitlines()[:HEAD]  # a device has no end
            head = [line for line in lines if not line.startswith("#")]
    except (OSError, UnicodeDecodeError):
        return False
    return any(re.match(r"\s+accelerators?:", line) for line in head)


def run_steps(
    entries: Sequence[Entry],
    jobs: int | None,
    done: Callable[[int, int], None] | None = None,
    values: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    *,
    known: Mapping[str, Answer] = MappingProxyType({}),
    keep: Callable[[Entry, Answer], None] | None = None,
) -> Steps:
    """Simulate all entries, those of most work first, or until Ctrl-C.

    An entry whose id is in `values` is simulated a second time with these values of constants,
    right after the first, since both need the same collectives. Answers that are `known` by id are
    not computed again; `keep` is called with each new answer."""
    work = [work_of(entry) for entry in entries]
    found: dict[int, Answer] = {
        number: known[entry.id] for number, entry in enumerate(entries) if entry.id in known
    }
    order = [number for number in range(len(entries)) if number not in found]
    order.sort(key=lambda number: -work[number])
    all_work, work_done = sum(work[number] for number in order), 0.0
    workers = Processes(jobs or os.cpu_count() or 1, _given)
    with suppress(KeyboardInterrupt), workers:  # what is finished is worth having
        asked = [(entry, values.get(entry.id, {})) for entry in entries]
        worked(0.0, all_work)
        for number, one in _answers(asked, order, workers):
            found[number] = str(one) if isinstance(one, Exception) else one
            if keep and not isinstance(one, Exception):  # a worker that died is asked again
                keep(entries[number], one)
            work_done += work[number]
            worked(work_done, all_work)
            at("", len(found), len(entries))
            if done:
                done(len(found), len(entries))
    steps = [found[number] for number in sorted(found)]
    failed = {entries[n].id: one for n, one in sorted(found.items()) if isinstance(one, str)}
    told = [one for one in steps if not isinstance(one, str)]
    first, again = (tuple(pair[side] for pair in told) for side in (0, 1))
    return Steps(first, failed, len(entries) - len(found), again if values else ())


LEAST_WORK = 100.0  # GPUs: of a smaller step, the tape takes as long as that


def work_of(entry: Entry) -> float:
    """About how long an entry takes to simulate, in GPUs; 0 where no scenario can be made of it.

    On one core, steps of the corpus on 10,000 GPUs took 80 to 150 s, on 512 about 5 s, on 256 about
    3 s: about 1 s for each 100 GPUs. They differ by several times around that (the number of
    micro-batches, and whether the collectives of such a cluster are known from another step).
    """
    try:
        gpus = published(entry).gpus
    except NetsimError:
        return 0.0
    return LEAST_WORK + gpus


Asked = tuple[Entry, Mapping[str, float]]


def _given(asked: Asked) -> Iterator[Answer]:
    yield _answer(*asked)


def _answers(
    asked: Sequence[Asked], order: Sequence[int], workers: Processes
) -> Iterator[tuple[int, Answer | Exception]]:
    if workers.count == 1 or len(order) == 1:
        yield from ((number, _answer(*asked[number])) for number in order)
        return
    jobs = ((asked[number], asked[number][0].id, 0, 1) for number in order)
    numbers = {entry.id: number for number, (entry, _) in enumerate(asked)}
    with closing(workers.results(jobs)) as results:
        for (entry, _), found in results:
            yield numbers[entry.id], found


HEAD = 40  # lines of an index, by which it is known
KEYS = ("group", "machine", "framework", "precision", "family", "gpus")


def tables(compared: Sequence[ComparedStep]) -> Iterator[tuple[str, dict[str, StepError]]]:
    """The tables of a page: by every key, and of all."""
    for key in KEYS:
        yield key, {name: error(some) for name, some in by(compared, key).items()}
    yield "all", {"all": error(compared)}


def page_of(found: Steps, sources: Mapping[str, str]) -> str:
    """The text of the page."""
    reasons = grouped(found.failed, lambda id_: found.failed[id_].removeprefix(f"{id_}: "))
    return rendered(
        "training.md",
        tables=tables(found.compared),
        groups=by(found.compared, "group"),
        listed=_listed,
        sources=sources,
        assumed=by_note(found.compared),
        reasons=reasons,
        left=dict(tables(found.left_out) if found.left_out else ()),
        without=found.without,
    )


def rendered(page: str, **values: Any) -> str:
    """A page of the folder `page` with some values; blank lines are single."""
    loader = PackageLoader("netsim.measured", "page")
    pages = Environment(loader=loader, trim_blocks=True, lstrip_blocks=True)
    pages.globals["linked"] = _linked
    return re.sub(r"\n{3,}", "\n\n", pages.get_template(page).render(values)).strip() + "\n"


def _linked(ids: Iterable[str], sources: Mapping[str, str]) -> str:
    links = sorted({sources[one] for one in ids if sources[one].startswith("http")})
    return "Sources: " + ", ".join(f"<{link}>" for link in links) if links else ""


def by_note(some: Sequence[ComparedStep]) -> dict[str, list[str]]:
    """What was assumed, and for which steps."""
    found: dict[str, list[str]] = {}
    for one in some:
        for note in one.published.notes:
            found.setdefault(note, []).append(one.published.id)
    return found


def _listed(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:MOST_NAMED])
    return shown if len(ids) <= MOST_NAMED else f"{shown} and {len(ids) - MOST_NAMED} more"


MOST_NAMED = 6
