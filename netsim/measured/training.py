"""Compare published throughputs of training with simulated steps.

An entry states a model, GPUs, a layout, and `step_time_s` or tokens per second and GPU. Its source
says which framework was used. The rules below turn an entry into a scenario; each value that the
entry does not state and a rule assumes is noted. If no rule makes a scenario of an entry, an error
says why.
"""

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
from netsim.measured.index import IndexEntry, read_index
from netsim.scenario.cells import expand
from netsim.topology.load import load_machine
from netsim.training.resolve import resolve_step
from netsim.training.run import folded_step
from netsim.workloads.model import MODELS
from netsim.yamlio.read import Source

Values = dict[str, Any]

_FILE = Path(__file__).with_name("training.toml")
_RULE_DATA: Mapping[str, Any] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
MACHINES: Sequence[tuple[str, str, Values]] = _RULE_DATA["patterns"]["machines"]
NAMED: Sequence[tuple[str, str]] = _RULE_DATA["patterns"]["models"]


class Unstated(InputError):
    """No scenario can be made of an entry; the message is the reason."""


@dataclass(frozen=True)
class Published:
    """A published training step as a scenario, with its time in seconds and the assumptions."""

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
        """Framework and GPU generation. Steps of a group are left out together, and together have
        the weight 1.
        """
        return f"{self.framework}, {self.generation}"

    @property
    def origin(self) -> str:
        """The framework, and the power limit of the GPUs if it differs from that of the machine."""
        overrides = self.data["cluster"].get("overrides", ())
        changed = [override["machine"].get("gpu", {}) for override in overrides]
        return ", ".join([self.framework, *(gpu["power"] for gpu in changed if "power" in gpu)])

    @property
    def work(self) -> Values:
        """The section `workload` of the scenario."""
        work: Values = self.data["workload"]
        return work

    @property
    def rate(self) -> float:
        """The published throughput in tokens per second and GPU."""
        return float(self.work["batch"] * self.work["sequence"] / (self.seconds * self.gpus))


@dataclass
class _Rules:
    """The values that an entry states, and the notes on what was assumed for it."""

    entry: IndexEntry
    notes: list[str] = field(default_factory=list)

    def text(self, *path: str) -> str:
        """Return a value of the entry as text; of a cell with remarks in brackets only what
        precedes them; empty if it is not stated.
        """
        text = self.entry.text(*path).split("(")[0].strip()
        unstated = ("none", "n/a", "null", "see section in the source")
        return "" if text.casefold() in unstated else text

    def number(self, *path: str) -> float | None:
        """Return the number at the start of a value, or None."""
        match = re.match(r"\d+(\.\d+)?", self.text(*path).replace(",", ""))
        return float(match.group()) if match else None

    def count(self, *path: str, usual: int | None = None) -> int:
        """Return a whole number of the entry, or `usual` if it is not stated; without `usual` that
        is an error.
        """
        number = self.number(*path)
        if number is not None:
            return int(number)
        if usual is None:
            raise Unstated(f"{'.'.join(path)} is not stated")
        return usual

    def degree(self, axis: str) -> int:
        """Return the degree of a kind of parallelism (`tp`, `pp` and so on), at least 1."""
        return max(1, self.count("parallelism", axis, usual=1))

    @cached_property
    def framework(self) -> str:
        """The framework, recognized by the source of the entry; `other` if it is unknown."""
        source = self.entry.text("source")
        for part, name in _RULE_DATA["frameworks"].items():
            if part in source:
                return str(name)
        return "TorchTitan" if "torchtitan" in self.entry.text("techniques") else "other"

    @cached_property
    def machine(self) -> tuple[str, Values]:
        """The name of the machine, and the keys of its GPU that the entry changes."""
        name = self.entry.text("accelerator")
        for pattern, machine, figures in MACHINES:
            if re.search(pattern, name, re.IGNORECASE):
                if not machine:
                    raise Unstated(f"kernels of {name} are not modeled")
                return machine, figures
        raise Unstated(f"no machine has {name}")

    @cached_property
    def has_adapters(self) -> bool:
        """Whether the entry trains adapters of low rank, judged by its model or phase."""
        texts = (self.entry.text(key) for key in ("model", "phase", "benchmark"))
        return any("lora" in text.casefold() for text in texts)

    @cached_property
    def gpus(self) -> int:
        """The number of GPUs."""
        return self.count("accelerators")

    @cached_property
    def sequence(self) -> int:
        """The length of a sequence in tokens."""
        return self.count("seq_len")

    def cluster(self) -> Values:
        """Return the section `cluster` of the scenario; hosts are divided evenly over NVLink
        domains.
        """
        name, figures = self.machine
        machine = load_machine(name)
        count = machine.gpu.count
        gpus_per_node = min(self.count("per_node", usual=count), self.gpus, count)
        nodes = -(-self.gpus // gpus_per_node)
        cluster: Values = {"machine": name, "nodes": nodes}
        if gpus_per_node != count:
            cluster["gpus_per_node"] = gpus_per_node
        changed: Values = {"gpu": figures} if figures else {}
        scale_up = machine.scale_up
        if scale_up and 1 < scale_up.hosts < nodes:
            domains = -(-nodes // scale_up.hosts)
            while nodes % domains:
                domains += 1
            changed["scale_up"] = {"hosts": nodes // domains}
        if changed:
            cluster["overrides"] = [{"machine": changed}]
        return cluster

    def model(self) -> tuple[Any, str]:
        """Return the model, as a name or as its values, and the name of its family."""
        name = self.entry.text("model")
        if size := re.search(r"MPT (\d+\w)", name, re.IGNORECASE):
            return self.mpt(size.group(1).lower()), "MPT"
        if re.search(r"GPT-3 175B", name, re.IGNORECASE):
            return {**_RULE_DATA["gpt3"], "sequence": self.sequence}, "GPT-3"
        for pattern, model in NAMED:
            if re.search(pattern, name, re.IGNORECASE) and model in MODELS:
                # The model with the layers for multi-token prediction, unless the entry excludes
                # them.
                with_mtp = f"{model}-mtp"
                has_mtp = with_mtp in MODELS and "w/o MTP" not in name
                family = _RULE_DATA["families"].get(model, model)
                return with_mtp if has_mtp else model, family
        raise Unstated(f"the layers of {name} are not among those that are simulated")

    def mpt(self, size: str) -> Values:
        """Return the values of a model of the MPT family, given its size such as `7b`."""
        layers, hidden, heads = _RULE_DATA["mpt"].get(size, (0, 0, 0))
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
        """Return the published time of a step in seconds, as stated or derived from the tokens per
        second.
        """
        stated = self.number("step_time_s")
        if stated:
            return stated
        rate = self.number("tokens_per_s_per_accelerator")
        if not rate:
            raise Unstated("neither the time of a step nor tokens a second are stated")
        return self.batch * self.sequence / (rate * self.gpus)

    @cached_property
    def batch(self) -> int:
        """The sequences of a step on all GPUs together."""
        stated = self.number("global_batch")
        if stated:
            return int(stated)
        local = self.count("local_batch", usual=0) or self.count("micro_batch", usual=0)
        if not local:
            raise Unstated("the batch is not stated")
        return local * self.replicas

    @cached_property
    def replicas(self) -> int:
        """The number of replicas of the model: GPUs over tp x pp x cp."""
        gpus_per_replica = self.degree("tp") * self.degree("pp") * self.degree("cp")
        if gpus_per_replica > self.gpus:
            raise Unstated(f"tp x pp x cp is {gpus_per_replica}, on {self.gpus} GPUs")
        return self.gpus // gpus_per_replica


# Settings that the code of each framework uses without its users stating them.


def _mosaic(rules: _Rules) -> Values:
    """Return the workload of an entry with LLM Foundry: an FSDP unit per block, gradients reduced
    in 16 bits.

    It uses FlashAttention (version 2 since the H100), fused cross entropy, and non-reentrant
    checkpoints of complete blocks.
    """
    checkpoints = rules.text("activation_checkpointing").casefold() == "true"
    sharding = rules.text("parallelism", "sharding")
    rules.notes.append("FSDP units of a block, gradients reduced in 16 bits (its benchmark's PURE)")
    return {
        "dtype": "fp8" if "fp8" in rules.text("precision") else "bfloat16",
        "micro_batch": rules.count("micro_batch"),
        "attention": "unpadded",
        "elementwise": "eager",
        "loss": "kernel",
        "optimizer": "adam-eager",
        "recompute": "non-reentrant" if checkpoints else "none",
        "parallelism": {"data": "fsdp"},
        "replicas": {"reshard": sharding != "SHARD_GRAD_OP"},
    }


def _titan(rules: _Rules) -> Values:
    """Return the workload of an entry with TorchTitan: FSDP2 that reduces gradients in fp32, and
    FlashAttention-2.

    The loss is computed in fp32, operation by operation, and so was Adam in 2024; without a
    compiler all operations are eager. A pipeline has one micro-batch per stage.
    """
    techniques = rules.text("techniques")
    precision = rules.text("precision")
    is_fp8 = "float8" in precision
    pp = rules.degree("pp")
    work: Values = {
        "dtype": "fp8" if is_fp8 else "bfloat16",
        "attention": "flash2",
        "loss": "eager",
        "projections": "apart",
        "elementwise": "fused" if re.search("compile|SAC|AsyncTP", techniques) else "eager",
        "recompute": "non-reentrant" if "full AC" in techniques else "ops",
    }
    if "202412" in rules.entry.text("source"):
        work["optimizer"] = "adam-eager"
    if is_fp8:
        work["scaling"] = "row" if "rowwise" in precision else "tensor"
    by_tensor = is_fp8 and work["scaling"] == "tensor"
    local = rules.batch // rules.replicas
    work["micro_batch"] = max(1, local // pp) if pp > 1 else local
    if pp > 1:
        rules.notes.append("as many micro-batches as stages")
        work["pipeline"] = {"chunks": 2 if "Interleaved" in techniques else 1}
    async_tp = re.search("async ?TP", techniques, re.IGNORECASE)
    work["parallelism"] = {
        "data": "fsdp2",
        "context": "all_gather",
        "sequence_parallel": True,
        "tensor_overlap": "pipelined" if async_tp else "none",
    }
    rules.notes.append(
        "weights gathered in FP8 where scales are of tensors, gradients reduced in fp32"
    )
    work["replicas"] = {
        "gradient_dtype": "float",
        "reshard": pp == 1,
        "no_sync": True,
        "gather": "fp8" if by_tensor else "weights",
    }
    return work


def _megatron(rules: _Rules) -> Values:
    """Return the workload of an entry with Megatron Core: a distributed optimizer that overlaps its
    exchanges.

    Tensor parallelism is combined with sequence parallelism and user buffers; pipelines are
    interleaved.
    """
    chunks = rules.degree("vp")
    pp = rules.degree("pp")
    return {
        "micro_batch": rules.count(
            "parallelism", "micro_batch", usual=rules.count("micro_batch", usual=1)
        ),
        "parallelism": {
            "data": "distributed-optimizer",
            "sequence_parallel": rules.degree("tp") > 1,
            "tensor_overlap": "pipelined",
            "expert_tensor": False,
            "dispatcher": "deduplicated",
        },
        "pipeline": {"chunks": chunks if pp > 1 else 1},
        "replicas": {"overlap_gather": True, "gradient_dtype": "bfloat16"},
    }


def _mlperf(rules: _Rules) -> Values:
    """Return the workload of NVIDIA's MLPerf submissions, as their configurations state it.

    FP8 has delayed scaling, and weights are gathered in FP8 since v4.0. A stage has twelve chunks
    if none are stated. Version 3.0 used FlashAttention 1.0.5.
    """
    work = _megatron(rules)
    source = rules.entry.text("source")
    pp = rules.degree("pp")
    if not rules.text("parallelism", "vp") and pp > 1 and "GPT-3" in rules.entry.text("model"):
        work["pipeline"]["chunks"] = min(12, 96 // pp)
        rules.notes.append("twelve chunks a stage")
    if not rules.text("precision"):
        ampere = "a100" in rules.entry.text("accelerator").casefold()
        work["dtype"] = "bfloat16" if ampere else "fp8"
        rules.notes.append(f"dtype {work['dtype']}")
    if "results_v3.0" in source:
        work["attention"] = "flash2"
        rules.notes.append("FlashAttention 1.0.5, simulated as 2")
    elif "results_v3.1" not in source and work.get("dtype") == "fp8":
        work["replicas"]["gather"] = "fp8"
    if rules.has_adapters:
        # As MLPerf's reference for Llama 2 70B fine-tunes it; from memory, not looked up.
        work["lora"] = {"rank": 16, "targets": ["linear_qkv", "linear_proj"]}
        rules.notes.append("adapters of rank 16 on linear_qkv and linear_proj (its reference)")
    return work


def _nemo(rules: _Rules) -> Values:
    """Return the workload of NVIDIA's NeMo tables (recipes of Megatron-Bridge): FP8 scaled by
    tensors.

    Weights are gathered in FP8.
    """
    work = _megatron(rules)
    precision = rules.text("precision")
    if not precision:
        rules.notes.append("FP8 scaled by tensors: the first figure of a cell")
        precision = "FP8-CS"
    lower_case = precision.casefold()
    dtypes = _RULE_DATA["patterns"]["dtypes"]
    work["dtype"] = next((dtype for part, dtype in dtypes if re.search(part, lower_case)), "")
    if not work["dtype"]:
        raise Unstated(f"the precision {precision} is not modeled")
    if work["dtype"] == "fp8":
        work["scaling"] = "tensor"
    if work["dtype"] != "bfloat16":
        work["replicas"]["gather"] = "fp8"
    if rules.degree("fsdp") > 1:
        work["parallelism"]["data"] = "fsdp2"
        work["replicas"] = {"gradient_dtype": "bfloat16", "no_sync": True}
        del work["parallelism"]["expert_tensor"], work["parallelism"]["dispatcher"]
    _recipe(rules, work)
    if rules.has_adapters:
        work["lora"] = _adapters(rules)
    return work


def _adapters(rules: _Rules) -> Values:
    """Return the adapters of an entry with LoRA.

    Megatron-Bridge's recipe for Llama 3 70B has rank 16 (src/megatron/bridge/recipes/llama/h100/
    llama3.py); that of the performance tables adapts `linear_qkv` alone (src/megatron/bridge/
    perf_recipes/llama/h100/llama3.py).
    """
    rules.notes.append("adapters of rank 16 on linear_qkv (its performance recipe)")
    return {"rank": 16, "targets": ["linear_qkv"]}


# The release from which on recipes overlap the exchange of tokens with another micro-batch.
BESIDE_OTHERS = 26.06
# Models and machines with the dispatcher `alltoall`, which sends a token to each of its experts
# separately; models that drop tokens use it as well.
ALL_TO_ALL = (
    (r"gpt.?oss", r"dgx-h100|dgx-b200|gb200"),
    (r"qwen3.?235", r"dgx-h100|dgx-b200|hgx-b300"),
    (r"kimi", r"dgx-h100|dgx-b200|hgx-b300"),
    (r"tokendrop", r".*"),
)


def _recipe(rules: _Rules, work: Values) -> None:
    """Add to a workload what the recipe of Megatron-Bridge states for its model, machine and
    release.
    """
    release = rules.number("release") or 0.0
    model = rules.entry.text("model").casefold()
    is_newer = release >= BESIDE_OTHERS and work["dtype"] in ("mxfp8", "nvfp4")
    has_experts_across_hosts = (
        "deepseek" in model
        and rules.machine[0] == "dgx-b200"
        and rules.degree("ep") > rules.count("per_node")
    )
    if "qwen3_235" in model and rules.machine[0] == "dgx-h100":
        has_experts_across_hosts = True
        work["parallelism"]["tensor_overlap"] = "none"
    if re.search(HYBRID, model):
        _hybrid_recipe(rules, work, is_newer=is_newer)
        return
    if rules.degree("ep") > 1 and (is_newer or has_experts_across_hosts):
        work["parallelism"]["expert_overlap"] = True
        rules.notes.append("tokens travel beside another micro-batch")
    for pattern, machines in ALL_TO_ALL:
        if re.search(pattern, model) and re.search(machines, rules.machine[0]) and not is_newer:
            work["parallelism"]["dispatcher"] = "alltoall"
            rules.notes.append("tokens go to each of their experts")
    if is_newer and ("oss" not in model or rules.machine[0] != "hgx-b300"):
        work["experts"] = "fused"
        rules.notes.append("products of experts do what lies between them")
    if "kimi" in model:
        rules.notes.append("Adam with a distributed optimizer (its recipe has Muon)")
    elif is_newer:
        return
    _recompute(rules, work)


HYBRID = r"nemotron.?3"


def _hybrid_recipe(rules: _Rules, work: Values, *, is_newer: bool) -> None:
    """Add to a workload what the recipes of Nemotron 3 state (src/megatron/bridge/perf_recipes/
    nemotronh of Megatron-Bridge).

    Tokens are not sent beside another micro-batch, and products do not run in parts. With MXFP8,
    GB200 and GB300 have fused experts. With NVFP4 weights are gathered in 16 bits.
    """
    work["parallelism"]["tensor_overlap"] = "bulk"
    machine = rules.machine[0]
    if is_newer and work["dtype"] == "mxfp8" and machine in ("gb200-nvl72", "gb300-nvl72"):
        work["experts"] = "fused"
        rules.notes.append("products of experts do what lies between them")
    if work["dtype"] == "nvfp4":
        work["replicas"]["gather"] = "weights"
    _recompute(rules, work)


def _recompute(rules: _Rules, work: Values) -> None:
    """Add to a workload the modules that the recipe recomputes, with a note."""
    model = rules.entry.text("model").casefold()
    for pattern, machines, modules in _RULE_DATA["patterns"]["recomputed"]:
        if re.search(pattern, model) and re.search(machines, rules.machine[0]):
            work["recompute"] = modules
            rules.notes.append(f"recompute {', '.join(modules)}")
            return


RULES: dict[str, Callable[[_Rules], Values]] = {
    "MosaicML": _mosaic,
    "TorchTitan": _titan,
    "MLPerf (NeMo)": _mlperf,
    "NeMo": _nemo,
}


def published(entry: IndexEntry) -> Published:
    """Return the entry as a training step with its scenario.

    Raises:
        Unstated: no scenario can be made of the entry.
    """
    rules = _Rules(entry)
    name, _ = rules.machine
    if entry.text("duplicate_of"):
        raise Unstated(f"again: {entry.text('duplicate_of')}")
    if not (rules.text("step_time_s") or rules.text("tokens_per_s_per_accelerator")):
        raise Unstated("nothing but the time of a whole run is stated")
    if rules.framework not in RULES:
        raise Unstated("no rules for its framework")
    if rules.framework == "MLPerf (NeMo)" and not isinstance(
        entry.values.get("parallelism"), Mapping
    ):
        raise Unstated("its degrees of parallelism are not stated")
    model, family = rules.model()
    work = RULES[rules.framework](rules)
    work["parallelism"] |= {axis: rules.degree(axis) for axis in ("tp", "pp", "cp", "ep")}
    _divided(rules, work, model)
    work |= {"model": model, "batch": rules.batch, "sequence": rules.sequence, "allow_oom": True}
    data = {"cluster": rules.cluster(), "workload": work}
    generation = _RULE_DATA["generations"].get(
        load_machine(name).gpu.arch, load_machine(name).gpu.arch
    )
    return Published(
        id=entry.id,
        framework=rules.framework,
        machine=name,
        generation=generation,
        family=family,
        precision=work.get("dtype", "bfloat16"),
        gpus=rules.gpus,
        seconds=rules.seconds(),
        data=data,
        notes=tuple(rules.notes),
    )


def _divided(rules: _Rules, work: Values, model: Any) -> None:
    """Set the layers of each pipeline stage if they do not divide evenly, and limit expert
    parallelism.

    The embedding and the loss count as one layer each, if this makes the stages even; otherwise the
    last stage has fewer layers. Experts are divided over at most all replicas. `model` is its name
    or its values.
    """
    parallel = work["parallelism"]
    layers = MODELS[model].layers if isinstance(model, str) else 0
    replicas = rules.replicas
    parts = parallel["pp"] * work.get("pipeline", {}).get("chunks", 1)
    if isinstance(layers, int) and layers % parts:
        layers_per_part = -(-layers // parts)
        stages = [layers_per_part] * (parts - 1) + [layers - layers_per_part * (parts - 1)]
        if (layers + 2) % parts == 0:
            stages = [layers_per_part - 1, *[layers_per_part] * (parts - 2), layers_per_part - 1]
        elif stages[-1] < 0:  # the last stage has the loss alone, and the first one fewer
            others = [layers_per_part - 1, *[layers_per_part] * (parts - 2)]
            stages = [*others, layers - sum(others)]
        if min(stages) < 0 or sum(stages) != layers:
            raise Unstated(f"{layers} layers in {parts} parts are not stated")
        work["pipeline"] = {**work.get("pipeline", {}), "stages": stages}
        rules.notes.append("layers by stage as Megatron divides them")
    if parallel["ep"] > replicas:
        rules.notes.append(f"ep {parallel['ep']} over tp and dp, simulated as {replicas} over dp")
        parallel["ep"] = replicas


def published_like(machine: str, work: Mapping[str, Any]) -> list[Published]:
    """Return the published steps on a machine that train the model of a workload with its sequence
    length.

    Their batches and layouts may differ from those of the workload.
    """
    steps = []
    for entry in read_index(preset_folder("scenarios") / "measured" / "training.yaml", ()):
        with suppress(Unstated):
            steps.append(published(entry))
    wanted = _model_and_sequence(work)
    return [
        step
        for step in steps
        if step.machine == machine and _model_and_sequence(step.work) == wanted
    ]


def _model_and_sequence(work: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return layers, width, heads, experts and sequence length of a workload."""
    model = work["model"]
    figures = asdict(MODELS[model]) if model in [*MODELS] else dict(model)
    sequence = work.get("sequence") or figures.get("sequence")
    return (*(figures.get(name) for name in ("layers", "hidden", "heads", "experts")), sequence)


# Published steps compared with their simulations. Every group of a framework and a GPU generation
# has the same weight.


@dataclass(frozen=True)
class ComparedStep:
    """A published step with its simulated time in seconds and its simulated MFU (a fraction)."""

    published: Published
    simulated: float
    mfu: float

    @property
    def log_ratio(self) -> float:
        """The natural logarithm of simulated over published time."""
        return log(self.simulated / self.published.seconds)

    @property
    def group(self) -> str:
        """The group (framework and GPU generation) of the published step."""
        return self.published.group


@dataclass(frozen=True)
class ComparedSteps:
    """All compared steps of an index; `failed` has the reasons why others are not simulated, by
    id.
    """

    compared: tuple[ComparedStep, ...]
    failed: Mapping[str, str]
    missing: int = 0
    # The same steps, each simulated with constants that were estimated without its own group.
    left_out: tuple[ComparedStep, ...] = ()
    without: tuple[str, ...] = ()  # these constants, in words

    def json(self) -> str:
        """Return the steps, the error of all steps, and the error of each group, as JSON text."""
        steps = [
            {
                "id": step.published.id,
                "group": step.group,
                "machine": step.published.machine,
                "family": step.published.family,
                "precision": step.published.precision,
                "gpus": step.published.gpus,
                "published_s": step.published.seconds,
                "simulated_s": step.simulated,
                "mfu": step.mfu,
                "assumed": step.published.notes,
            }
            for step in self.compared
        ]
        groups = by(self.compared, "group").items()
        values = {
            "steps": steps,
            "all": asdict(error(self.compared)) if self.compared else {},
            "groups": {name: asdict(error(of_group)) for name, of_group in groups},
            "failed": dict(self.failed),
        }
        if self.left_out:
            values["left_out"] = {step.published.id: step.simulated for step in self.left_out}
            values["all_left_out"] = asdict(error(self.left_out))
            values["without"] = self.without
        return json.dumps(values, indent=1) + "\n"


@dataclass(frozen=True)
class StepErrorFigures:
    """How far simulated steps are from published ones; every group has the same weight."""

    steps: int
    median: float
    p90: float
    bias: float


def error(compared: Sequence[ComparedStep]) -> StepErrorFigures:
    """Return how far the simulated times of steps are from the published ones; needs at least one
    step.

    The median, 90th percentile and bias are fractions; every group has the same weight.
    """
    ratios = [step.log_ratio for step in compared]
    groups = [step.group for step in compared]
    return StepErrorFigures(len(compared), *error_figures(ratios, weights_of(groups)))


def by(compared: Sequence[ComparedStep], key: str) -> dict[str, list[ComparedStep]]:
    """Return the compared steps in groups, by the value of one property of their published entries:
    `key` is its name, such as `group`. Numbers of GPUs (`gpus`) are grouped by powers of two.
    """
    if key != "gpus":
        of_value = grouped(compared, lambda step: str(getattr(step.published, key)))
        return dict(sorted(of_value.items()))
    ordered = sorted(compared, key=lambda step: step.published.gpus)
    powers = grouped(ordered, lambda step: (step.published.gpus - 1).bit_length())
    return {f"up to {1 << power} GPUs": steps for power, steps in powers.items()}


def compared(step: Published, values: Mapping[str, float] = MappingProxyType({})) -> ComparedStep:
    """Simulate a published step; `values` are other values of constants, by their ids."""
    with replaced(values):
        simulated = folded_step(resolve_step(expand(Source(step.id, step.data))[0]))
    return ComparedStep(step, simulated.seconds, simulated.mfu)


# A step simulated with the constants of the table, and with changed ones (twice the same if none
# are changed); or the reason why it cannot be simulated.
StepAnswer = tuple[ComparedStep, ComparedStep] | str


def _answer(entry: IndexEntry, values: Mapping[str, float]) -> StepAnswer:
    """Simulate an entry with the constants of the table and, if there are any, with the changed
    `values`.
    """
    try:
        step = published(entry)
        usual = compared(step)
        return usual, compared(step, values) if values else usual
    except NetsimError as problem:
        return " ".join(str(problem).split())


def is_published(path: Path) -> bool:
    """Whether an index file lists training steps, judged by the keys of its first entries."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = file.read(LARGEST_FILE).splitlines()[:HEAD]  # a device never ends
            head = [line for line in lines if not line.startswith("#")]
    except (OSError, UnicodeDecodeError):
        return False
    return any(re.match(r"\s+accelerators?:", line) for line in head)


def run_steps(
    entries: Sequence[IndexEntry],
    jobs: int | None,
    done: Callable[[int, int], None] | None = None,
    values: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    *,
    known_answers: Mapping[str, StepAnswer] = MappingProxyType({}),
    keep: Callable[[IndexEntry, StepAnswer], None] | None = None,
) -> ComparedSteps:
    """Simulate all entries, those with most work first; after Ctrl-C return those that are
    finished.

    Args:
        entries: the training steps.
        jobs: the number of worker processes; None is one per processor.
        done: called with the numbers of finished and of all steps.
        values: changed values of constants, by the id of the entry. Such an entry is simulated a
            second time right after the first, since both need the same collectives.
        known_answers: answers that are not computed again, by the id of the entry.
        keep: called with each new answer.
    """
    work = [work_of(entry) for entry in entries]
    answers: dict[int, StepAnswer] = {
        number: known_answers[entry.id]
        for number, entry in enumerate(entries)
        if entry.id in known_answers
    }
    order = [number for number in range(len(entries)) if number not in answers]
    order.sort(key=lambda number: -work[number])
    work_total = sum(work[number] for number in order)
    work_done = 0.0
    workers = Processes(jobs or os.cpu_count() or 1, _yield_answer)
    with suppress(KeyboardInterrupt), workers:  # what is finished is worth having
        questions = [(entry, values.get(entry.id, {})) for entry in entries]
        worked(0.0, work_total)
        for number, result in _answers(questions, order, workers):
            if isinstance(result, Exception):
                answers[number] = str(result)
            else:
                answers[number] = result
                if keep:  # a step whose worker died is not kept, so that it is simulated again
                    keep(entries[number], result)
            work_done += work[number]
            worked(work_done, work_total)
            at("", len(answers), len(entries))
            if done:
                done(len(answers), len(entries))
    failed = {}
    usual = []
    changed = []
    for number, answer in sorted(answers.items()):
        if isinstance(answer, str):
            failed[entries[number].id] = answer
        else:
            usual.append(answer[0])
            changed.append(answer[1])
    missing = len(entries) - len(answers)
    return ComparedSteps(tuple(usual), failed, missing, tuple(changed) if values else ())


# In GPUs: recording the operations of a step takes as long as simulating a step on this many GPUs.
LEAST_WORK = 100.0


def work_of(entry: IndexEntry) -> float:
    """Return an estimate of the time to simulate an entry, in units of GPUs; 0 if no scenario can
    be made of it.

    On one core, steps of the corpus on 10,000 GPUs took 80 to 150 s, on 512 about 5 s, on 256 about
    3 s: about 1 s for each 100 GPUs. They differ by several times around that (by the number of
    micro-batches, and by whether the collectives of such a cluster were simulated for another
    step).
    """
    try:
        gpus = published(entry).gpus
    except NetsimError:
        return 0.0
    return LEAST_WORK + gpus


StepQuestion = tuple[IndexEntry, Mapping[str, float]]  # a step and changed values of constants


def _yield_answer(question: StepQuestion) -> Iterator[StepAnswer]:
    """Yield the answer of a step. Worker processes call this function."""
    yield _answer(*question)


def _answers(
    questions: Sequence[StepQuestion], order: Sequence[int], workers: Processes
) -> Iterator[tuple[int, StepAnswer | Exception]]:
    """Simulate steps in the order `order` (their numbers); yield the number of each with its
    answer, as they finish.
    """
    if workers.worker_count == 1 or len(order) == 1:
        yield from ((number, _answer(*questions[number])) for number in order)
        return
    jobs = ((questions[number], questions[number][0].id, 0, 1) for number in order)
    numbers = {entry.id: number for number, (entry, _) in enumerate(questions)}
    with closing(workers.results(jobs)) as results:
        for (entry, _), answer in results:
            yield numbers[entry.id], answer


HEAD = 40  # lines of an index that are examined for its kind
KEYS = ("group", "machine", "framework", "precision", "family", "gpus")


def tables(compared: Sequence[ComparedStep]) -> Iterator[tuple[str, dict[str, StepErrorFigures]]]:
    """Yield the tables of the page: the errors by each property of steps, and those of all
    steps.
    """
    for key in KEYS:
        yield key, {name: error(steps) for name, steps in by(compared, key).items()}
    yield "all", {"all": error(compared)}


def page_of(result: ComparedSteps, sources: Mapping[str, str]) -> str:
    """Return the page of the docs on training steps, as Markdown; `sources` are web addresses by
    the id of the step.
    """
    reasons = grouped(result.failed, lambda step: result.failed[step].removeprefix(f"{step}: "))
    return rendered(
        "training.md",
        tables=tables(result.compared),
        groups=by(result.compared, "group"),
        listed=_listed,
        sources=sources,
        assumed=by_note(result.compared),
        reasons=reasons,
        left=dict(tables(result.left_out) if result.left_out else ()),
        without=result.without,
    )


def rendered(page: str, **values: Any) -> str:
    """Return a page of the folder `page`, filled in with values; several blank lines become one."""
    loader = PackageLoader("netsim.measured", "page")
    pages = Environment(loader=loader, trim_blocks=True, lstrip_blocks=True)
    pages.globals["linked"] = _linked
    return re.sub(r"\n{3,}", "\n\n", pages.get_template(page).render(values)).strip() + "\n"


def _linked(ids: Iterable[str], sources: Mapping[str, str]) -> str:
    """Return a line of links to the sources of steps; empty if no source is on the web."""
    links = sorted({sources[step] for step in ids if sources[step].startswith("http")})
    return "Sources: " + ", ".join(f"<{link}>" for link in links) if links else ""


def by_note(compared: Sequence[ComparedStep]) -> dict[str, list[str]]:
    """Return the ids of the steps for which each assumption was made, by the text of the
    assumption.
    """
    ids: dict[str, list[str]] = {}
    for step in compared:
        for note in step.published.notes:
            ids.setdefault(note, []).append(step.published.id)
    return ids


def _listed(ids: Sequence[str]) -> str:
    """Return a text with the first ids and the number of the others."""
    shown = ", ".join(ids[:MOST_NAMED])
    return shown if len(ids) <= MOST_NAMED else f"{shown} and {len(ids) - MOST_NAMED} more"


MOST_NAMED = 6  # ids that a line of the page names
