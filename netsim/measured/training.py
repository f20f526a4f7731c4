"""Published training throughputs beside simulated steps: entries become scenarios by written rules.

An entry states a model, GPUs, a layout, and what was reached: `step_time_s`, or tokens a second and
GPU. Frameworks are told by their sources. Rules below say what stands for what is not stated; each
use of one is noted. An entry that no rule makes a scenario of says why.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, field
from functools import cached_property
from itertools import islice
from math import expm1, log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netsim.base.errors import InputError, NetsimError
from netsim.base.processes import Processes
from netsim.base.values import dataclass
from netsim.measured.compare import weights_of
from netsim.measured.index import Entry
from netsim.scenario.cells import expand
from netsim.topology.load import load_machine
from netsim.training.prepare import prepare_step
from netsim.training.run import folded_step
from netsim.workloads.model import MODELS
from netsim.yamlio.read import Source

Values = dict[str, Any]

FRAMEWORKS = {
    "mlcommons": "MLPerf (NeMo)", "llm-foundry": "MosaicML", "torchtitan": "TorchTitan",
    "Megatron-Bridge": "NeMo",
}  # fmt: skip
# What accelerators are called, and the machine that has them with the figures that differ.
MACHINES: tuple[tuple[str, str, Values], ...] = (
    (r"gaudi|tpu|trainium|mi\d{3}", "", {}),
    (r"500W", "dgx-h100", {"power": "500W", "memory": "96GB", "memory_bandwidth": "2400GB/s"}),
    (r"a100.*40", "dgx-a100", {"memory": "40GB", "memory_bandwidth": "1555GB/s"}),
    (r"gb300", "gb300-nvl72", {}),
    (r"gb200", "gb200-nvl72", {}),
    (r"b300", "hgx-b300", {}),
    (r"b200|blackwell", "dgx-b200", {}),
    (r"gh200", "gh200-x4", {}),
    (r"h200", "hgx-h200", {}),
    (r"h100", "dgx-h100", {}),
    (r"a100", "dgx-a100", {}),
)
GENERATIONS = {
    "sm_80": "Ampere", "sm_90": "Hopper", "sm_100": "Blackwell", "sm_103": "Blackwell Ultra",
}  # fmt: skip
# Layers, hidden, heads of MPT, as MosaicML's configurations have them.
MPT = {
    "125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12), "1b": (24, 2048, 16),
    "3b": (32, 2560, 20), "7b": (32, 4096, 32), "13b": (40, 5120, 40), "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}  # fmt: skip
NAMED = (
    (r"llama.?3.*405", "llama3-405b"), (r"llama.?3.*70b", "llama3-70b"),
    (r"llama.?3.*8b", "llama3-8b"), (r"llama.?2.*70b", "llama2-70b"),
    (r"deepseek.?v3", "deepseek-v3"), (r"mixtral.*8x7", "mixtral-8x7b"),
    (r"qwen3.*235", "qwen3-235b-a22b"), (r"qwen3.*30b", "qwen3-30b-a3b"),
    (r"gpt.?oss.*120", "gpt-oss-120b"), (r"gpt.?oss.*20", "gpt-oss-20b"),
)  # fmt: skip

FAMILIES = {
    **dict.fromkeys(("llama2-70b", "llama3-8b", "llama3-70b", "llama3-405b"), "Llama"),
    **dict.fromkeys(("qwen3-30b-a3b", "qwen3-235b-a22b"), "Qwen3"),
    **dict.fromkeys(("gpt-oss-20b", "gpt-oss-120b"), "GPT-OSS"), "deepseek-v3": "DeepSeek-V3",
}  # fmt: skip


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

    def assume(self, note: str) -> None:
        """Note what a rule stands for."""
        self.notes.append(note)

    @cached_property
    def framework(self) -> str:
        source = self.entry.text("source")
        for part, name in FRAMEWORKS.items():
            if part in source:
                return name
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
        most = up.hosts if up else 1
        if most > 1 and nodes > most:
            domains = -(-nodes // most)
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
            return {**GPT3, "sequence": self.sequence}, "GPT-3"
        for pattern, known in NAMED:
            if re.search(pattern, name, re.IGNORECASE) and known in MODELS:
                more = f"{known}-mtp"
                whole = more in MODELS and "w/o MTP" not in name
                return more if whole else known, FAMILIES.get(known, known)
        raise Unstated(f"the layers of {name} are not among those that are simulated")

    def mpt(self, size: str) -> Values:
        layers, hidden, heads = MPT.get(size, (0, 0, 0))
        layers = self.count("layers", usual=layers)
        if not layers:
            raise Unstated(f"layers and width of MPT {size} are not stated")
        hidden = self.count("hidden", usual=hidden)
        return {
            "layers": layers, "hidden": hidden, "heads": self.count("heads", usual=heads),
            "ffn": 4 * hidden, "vocabulary": 50368, "sequence": self.sequence, "gated": False,
            "tied": True, "positions": self.sequence,
        }  # fmt: skip

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
        return self.gpus // (self.degree("tp") * self.degree("pp") * self.degree("cp"))


GPT3 = {
    "layers": 96, "hidden": 12288, "heads": 96, "ffn": 49152, "vocabulary": 51200, "gated": False,
    "biases": True, "tied": True, "positions": 2048,
}  # fmt: skip


# What each framework does that its users do not state, as its code has it.


def _mosaic(r: _Rules) -> Values:
    """LLM Foundry: FSDP of a block a unit with 16-bit reduction, FlashAttention (2 since the H100),
    fused cross entropy, non-reentrant checkpoints of whole blocks.
    """
    checkpoints = r.text("activation_checkpointing").casefold() == "true"
    sharding = r.text("parallelism", "sharding")
    r.assume("FSDP units of a block, gradients reduced in 16 bits (its benchmark's PURE)")
    return {
        "dtype": "fp8" if "fp8" in r.text("precision") else "bfloat16",
        "micro_batch": r.count("micro_batch"),
        "attention": "unpadded",
        "loss": "kernel",
        "optimizer": "adam-eager",
        "recompute": "non-reentrant" if checkpoints else "none",
        "parallelism": {"data": "fsdp"},
        "replicas": {"reshard": sharding != "SHARD_GRAD_OP"},
    }


def _titan(r: _Rules) -> Values:
    """TorchTitan: FSDP2 that reduces in fp32, FlashAttention-2, loss in fp32 op by op; without a
    compiler all is eager. Pipelines have as many micro-batches as stages.
    """
    told, precision = r.text("techniques"), r.text("precision")
    narrow, pp = "float8" in precision, r.degree("pp")
    work: Values = {
        "dtype": "fp8" if narrow else "bfloat16",
        "attention": "flash2",
        "loss": "eager",
        "elementwise": "fused" if re.search("compile|SAC|AsyncTP", told) else "eager",
        "recompute": "non-reentrant" if "full AC" in told else "ops",
    }
    if narrow:
        work["scaling"] = "row" if "rowwise" in precision else "tensor"
    by_tensor = narrow and work["scaling"] == "tensor"
    local = r.batch // r.replicas
    work["micro_batch"] = max(1, local // pp) if pp > 1 else local
    if pp > 1:
        r.assume("as many micro-batches as stages")
        work["pipeline"] = {"chunks": 2 if "Interleaved" in told else 1}
    async_tp = re.search("async ?TP", told, re.IGNORECASE)
    work["parallelism"] = {
        "data": "fsdp2", "context": "all_gather", "sequence_parallel": True,
        "tensor_overlap": "pipelined" if async_tp else "none",
    }  # fmt: skip
    r.assume("weights gathered in FP8 where scales are of tensors, gradients reduced in fp32")
    work["replicas"] = {
        "gradient_dtype": "float", "reshard": pp == 1, "no_sync": True,
        "gather": "fp8" if by_tensor else "weights",
    }  # fmt: skip
    return work


def _megatron(r: _Rules) -> Values:
    """Megatron Core: distributed optimizer whose exchanges overlap, tensor parallelism with
    sequence parallelism and user buffers, interleaved pipelines.
    """
    chunks = r.count("parallelism", "vp", usual=1)
    pp = r.degree("pp")
    return {
        "micro_batch": r.count("parallelism", "micro_batch", usual=r.count("micro_batch", usual=1)),
        "parallelism": {
            "data": "distributed-optimizer", "sequence_parallel": r.degree("tp") > 1,
            "tensor_overlap": "pipelined", "expert_tensor": False, "dispatcher": "deduplicated",
        },
        "pipeline": {"chunks": chunks if pp > 1 else 1},
        "replicas": {"overlap_gather": True, "gradient_dtype": "bfloat16"},
    }  # fmt: skip


def _mlperf(r: _Rules) -> Values:
    """NVIDIA's submissions: FP8 with delayed scaling; chunks of two layers if none are stated."""
    work = _megatron(r)
    pp = r.degree("pp")
    if not r.text("parallelism", "vp") and pp > 1:
        work["pipeline"]["chunks"] = max(1, 96 // pp // 2)
        r.assume("chunks of two layers")
    if not r.text("precision"):
        work["dtype"] = (
            "fp8" if "a100" not in r.entry.text("accelerator").casefold() else "bfloat16"
        )
        r.assume(f"dtype {work['dtype']}")
    return work


NEMO_DTYPES = (
    (r"nvfp4|fp4", "nvfp4"), (r"mxfp8|fp8-mx", "mxfp8"), (r"fp8", "fp8"), (r"bf16", "bfloat16"),
)  # fmt: skip


def _nemo(r: _Rules) -> Values:
    """NVIDIA's NeMo tables (Megatron-Bridge's recipes): FP8 by tensors, gathered in FP8."""
    work = _megatron(r)
    precision = r.text("precision")
    if not precision:
        r.assume("FP8 scaled by tensors: the first figure of a cell")
        precision = "FP8-CS"
    told = precision.casefold()
    work["dtype"] = next((dtype for part, dtype in NEMO_DTYPES if re.search(part, told)), "")
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


# Modules that Megatron-Bridge's recipes recompute (scripts/performance/configs), by model and
# machine; of experts in MXFP8 and NVFP4 before 26.06 only.
RECOMPUTED = (
    (r"deepseek", r".*", ["mla_up_proj"]),
    (r"gpt.?oss", r"dgx-h100|dgx-b200|gb200", ["layernorm", "moe_act"]),
)
BESIDE_OTHERS = 26.06  # release since which recipes exchange tokens beside another micro-batch


def _recipe(r: _Rules, work: Values) -> None:
    """What Megatron-Bridge's recipe of a model and machine adds, by release."""
    release, model = r.number("release") or 0.0, r.entry.text("model").casefold()
    newer = release >= BESIDE_OTHERS and work["dtype"] in ("mxfp8", "nvfp4")
    across = (
        "deepseek" in model and r.machine[0] == "dgx-b200" and r.degree("ep") > r.count("per_node")
    )
    if r.degree("ep") > 1 and (newer or across):
        work["parallelism"]["expert_overlap"] = True
        r.assume("tokens travel beside another micro-batch")
    if newer:
        return
    for pattern, machines, modules in RECOMPUTED:
        if re.search(pattern, model) and re.search(machines, r.machine[0]):
            work["recompute"] = modules
            r.assume(f"recompute {', '.join(modules)}")


RULES: dict[str, Callable[[_Rules], Values]] = {
    "MosaicML": _mosaic, "TorchTitan": _titan, "MLPerf (NeMo)": _mlperf, "NeMo": _nemo,
}  # fmt: skip


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
    generation = GENERATIONS.get(load_machine(name).gpu.arch, load_machine(name).gpu.arch)
    return Published(
        entry.id, r.framework, name, generation, family, work.get("dtype", "bfloat16"), r.gpus,
        r.seconds(), data, tuple(r.notes),
    )  # fmt: skip


def _divided(r: _Rules, work: Values, model: Any) -> None:
    """Layers over stages where they are not even: embedding and loss count as one each, or the last
    stage has fewer; and experts over no more ranks than replicas.
    """
    parallel, layers = work["parallelism"], MODELS[model].layers if isinstance(model, str) else 0
    parts = parallel["pp"] * work.get("pipeline", {}).get("chunks", 1)
    if isinstance(layers, int) and layers % parts:
        each = -(-layers // parts)
        stages = [each] * (parts - 1) + [layers - each * (parts - 1)]
        if (layers + 2) % parts == 0:
            stages = [each - 1, *[each] * (parts - 2), each - 1]
        if min(stages) < 0 or sum(stages) != layers:
            raise Unstated(f"{layers} layers in {parts} parts are not stated")
        work["pipeline"] = {**work.get("pipeline", {}), "stages": stages}
        r.assume("layers by stage as Megatron divides them")
    if parallel["ep"] > r.replicas:
        r.assume(f"ep {parallel['ep']} over tp and dp, told as {r.replicas} over dp")
        parallel["ep"] = r.replicas


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
        return f"{self.published.framework}, {self.published.generation}"


@dataclass(frozen=True)
class Steps:
    """All steps of an index, and why others are not simulated, by id."""

    compared: tuple[ComparedStep, ...]
    failed: Mapping[str, str]
    missing: int = 0

    def json(self) -> str:
        """Every step, and the errors of the whole and of its groups."""
        steps = [
            {
                "id": one.published.id, "group": one.group, "machine": one.published.machine,
                "family": one.published.family, "precision": one.published.precision,
                "gpus": one.published.gpus, "published_s": one.published.seconds,
                "simulated_s": one.simulated, "mfu": one.mfu, "assumed": one.published.notes,
            }
            for one in self.compared
        ]  # fmt: skip
        groups = {name: asdict(error(some)) for name, some in by(self.compared, "group").items()}
        whole = asdict(error(self.compared)) if self.compared else {}
        values = {"steps": steps, "all": whole, "groups": groups, "failed": dict(self.failed)}
        return json.dumps(values, indent=1) + "\n"


@dataclass(frozen=True)
class StepError:
    """How far simulated steps are from published ones, each group of which weighs as much."""

    steps: int
    median: float
    p90: float
    bias: float

    def __str__(self) -> str:
        return f"{self.median:.1%} [{self.p90:.0%}] {self.bias:+.1%}"


def error(some: Sequence[ComparedStep]) -> StepError:
    """The error of some steps, at least one."""
    weights = weights_of([one.group for one in some])
    ratios = np.array([one.log_ratio for one in some])

    def quantile(values: NDArray[np.float64], part: float) -> float:
        order = np.argsort(values)
        reached = np.cumsum(weights[order]) / weights.sum()
        place = min(int(np.searchsorted(reached, part - 1e-9)), len(values) - 1)
        return float(np.expm1(values[order][place]))

    size = np.abs(ratios)
    return StepError(len(some), quantile(size, 0.5), quantile(size, 0.9), quantile(ratios, 0.5))


def by(some: Sequence[ComparedStep], key: str) -> dict[str, list[ComparedStep]]:
    """Steps by group, or by what is published of them; GPUs in powers of two."""
    found: dict[str, list[ComparedStep]] = {}
    ordered = sorted(some, key=lambda one: one.published.gpus) if key == "gpus" else some
    for one in ordered:
        found.setdefault(_named(one, key), []).append(one)
    return found if key == "gpus" else dict(sorted(found.items()))


def _named(one: ComparedStep, key: str) -> str:
    if key == "group":
        return one.group
    if key == "gpus":
        return f"up to {1 << (one.published.gpus - 1).bit_length()} GPUs"
    return str(getattr(one.published, key))


def compared(one: Published) -> ComparedStep:
    """Simulate the scenario of an entry."""
    step = folded_step(prepare_step(expand(Source(one.id, one.data))[0]))
    return ComparedStep(one, step.seconds, step.mfu)


def _answer(entry: Entry) -> ComparedStep | str:
    try:
        return compared(published(entry))
    except NetsimError as problem:
        return " ".join(str(problem).split())


def is_published(path: Path) -> bool:
    """Whether an index is one of training steps, by the first keys of its entries."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            head = [line for line in islice(file, HEAD) if not line.startswith("#")]
    except (OSError, UnicodeDecodeError):
        return False
    return any(re.match(r"\s+accelerators?:", line) for line in head)


def run_steps(
    entries: Sequence[Entry],
    jobs: int | None = None,
    done: Callable[[int, int], None] | None = None,
) -> Steps:
    """Simulate all entries, those of many GPUs first, or until Ctrl-C."""
    gpus = [float(entry.text("accelerators") or 0) for entry in entries]
    order = sorted(range(len(entries)), key=lambda number: -gpus[number])
    found: dict[int, ComparedStep | str] = {}
    workers = Processes(jobs or os.cpu_count() or 1, _given)
    with suppress(KeyboardInterrupt), workers:  # what is finished is worth having
        for number, one in _answers(entries, order, workers):
            found[number] = one
            if done:
                done(len(found), len(entries))
    steps = [found[number] for number in sorted(found)]
    failed = {entries[n].id: one for n, one in sorted(found.items()) if isinstance(one, str)}
    told = tuple(one for one in steps if not isinstance(one, str))
    return Steps(told, failed, len(entries) - len(found))


def _given(entry: Entry) -> Iterator[ComparedStep | str]:
    yield _answer(entry)


def _answers(
    entries: Sequence[Entry], order: Sequence[int], workers: Processes
) -> Iterator[tuple[int, ComparedStep | str]]:
    if workers.count == 1 or len(order) == 1:
        yield from ((number, _answer(entries[number])) for number in order)
        return
    jobs = ((entries[number], entries[number].id, 0, 1) for number in order)
    numbers = {entry.id: number for number, entry in enumerate(entries)}
    with closing(workers.results(jobs)) as results:
        for entry, found in results:
            yield numbers[entry.id], str(found) if isinstance(found, Exception) else found


HEAD = 40  # lines of an index, by which it is known
KEYS = ("group", "machine", "framework", "precision", "family", "gpus")


def tables(found: Steps) -> Iterator[tuple[str, dict[str, StepError]]]:
    """The tables of a page: by every key, and of all."""
    for key in KEYS:
        yield key, {name: error(some) for name, some in by(found.compared, key).items()}
    yield "all", {"all": error(found.compared)}


def page_of(found: Steps, sources: Mapping[str, str]) -> Iterator[str]:
    """The lines of the page."""
    yield INTRO
    for title, table in tables(found):
        yield f"\n| {title} | steps | median error | 90th percentile | bias |"
        yield "|---|---|---|---|---|"
        for name, one in table.items():
            yield f"| {name} | {one.steps} | {one.median:.1%} | {one.p90:.0%} | {one.bias:+.1%} |"
    for name, some in by(found.compared, "group").items():
        yield f"\n## {name}\n"
        yield "| step | model | GPUs | dtype | published, s | simulated, s | error | MFU |"
        yield "|---|---|---|---|---|---|---|---|"
        yield from map(_line, some)
        links = sorted({sources[one.published.id] for one in some})
        yield "\nSources: " + ", ".join(f"<{link}>" for link in links if link.startswith("http"))
    yield "\n## Assumed\n"
    assumed = by_note(found.compared)
    yield from (f"- {note}: {_listed(ids)}" for note, ids in assumed.items())
    yield "\n## Not simulated\n"
    reasons: dict[str, list[str]] = {}
    for id_, reason in found.failed.items():
        reasons.setdefault(reason.removeprefix(f"{id_}: "), []).append(id_)
    yield from (f"- {reason}: {_listed(ids)}" for reason, ids in reasons.items())


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


def _line(one: ComparedStep) -> str:
    p = one.published
    return (
        f"| {p.id} | {p.family} | {p.gpus} | {p.precision} | {p.seconds:.4g} | "
        f"{one.simulated:.4g} | {expm1(one.log_ratio):+.1%} | {one.mfu:.0%} |"
    )


MOST_NAMED = 6
INTRO = """# Published training steps beside simulated ones

`netsim accuracy training.yaml --page docs/validation-training.md` writes this page. An entry of the
index (`scenarios/measured/training.yaml`) states a model, GPUs, a layout and what was reached; the
rules of its framework (`netsim/measured/training.py`) make a scenario of it. What a rule stands for
is listed as assumed. Groups of framework and generation weigh equally. Bias is the median of
simulated over published time.
"""
