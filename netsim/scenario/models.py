"""The keys of a scenario file as models: every key, its type and its default.

Whether values fit each other (an algorithm and its collective, ranks and GPUs) is checked in
`resolve`. The section `cluster` belongs to the topology package.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, Tag, ValidationInfo, model_validator

from netsim.base import constants
from netsim.base.errors import InputError, shown, suggest
from netsim.base.files import text_of
from netsim.base.units import parse_ratio, parse_time, size_steps
from netsim.collectives.collective import CollectiveError
from netsim.collectives.table import own_algorithm_key
from netsim.nccl import environment, tuning
from netsim.nccl.facts import NCCL_NAMES, NEWEST, facts_of, parse_version, supported_version
from netsim.nccl.graph_xml import read_graph_file
from netsim.scenario.names import DTYPES, CollectiveName, dtype_name
from netsim.schedule.repeat import ITERATIONS, OverProcesses
from netsim.topology.config import ClusterConfig
from netsim.topology.fault_times import Retries
from netsim.topology.host_costs import HostCosts
from netsim.yamlio import models
from netsim.yamlio.models import Bytes, Elsewhere, FieldError, Index, ListOf, Model, Part, Seconds

if TYPE_CHECKING:
    Dtype = str
    from netsim.nccl.communicator import TunerRule
    from netsim.nccl.graph_xml import GraphFile
    from netsim.scenario.training import Recorded, Training
else:
    # Training is imported only when a scenario has a training step: that saves 0.03 s of the 0.5 s
    # of processor time of a small run of a collective (15 pairs, 2026-11-29).
    GraphFile = TunerRule = Any  # made by validators, not from what a file holds
    Dtype = Annotated[Literal[tuple(DTYPES)], BeforeValidator(dtype_name)]
    Training = Annotated[Any, Elsewhere("netsim.scenario.training", "Training")]
    Recorded = Annotated[Any, Elsewhere("netsim.scenario.training", "Recorded")]

GRAPH_VARIABLE = "NCCL_GRAPH_FILE"
TUNER_VARIABLE = "NCCL_TUNER_CONFIG_FILE"
LARGEST_SIZE = 1 << 44
MOST_ITERATIONS = 100_000
LARGEST_SIZES = 1000  # most sizes of one workload; more are a mistake in a range


def _version(text: str) -> str:
    """Return a modeled version of NCCL in its shortest form."""
    try:
        return str(supported_version(parse_version(text)))
    except InputError as error:
        raise ValueError(str(error)) from None


class SizeRange(Model):
    """Sizes from `from` to `to`, each `factor` times the previous one, or `step` bytes more."""

    first: Bytes = Field(alias="from")
    last: Bytes = Field(alias="to")
    factor: Annotated[int, Field(ge=2)] | None = None
    step: Bytes | None = None

    @model_validator(mode="after")
    def _check(self) -> "SizeRange":
        """Raise an error for a range with both a factor and a step, with its ends exchanged, or
        with too many sizes.
        """
        if self.factor is not None and self.step is not None:
            raise FieldError("give either a factor or a step, not both", "step")
        if self.last < self.first:
            raise FieldError(f"ends at {self.last} B, before it begins at {self.first} B", "to")
        if self.step and (self.last - self.first) // self.step >= LARGEST_SIZES:
            raise FieldError(f"makes more than {LARGEST_SIZES} sizes", "step")
        return self

    def sizes(self) -> list[int]:
        """Return the sizes in bytes."""
        if self.step:
            return list(range(self.first, self.last + 1, self.step))
        return size_steps(self.first, self.last, self.factor or 2)


class TimedOperations(Model):
    """Operations back to back, as nccl-tests times them.

    Each process divides the time until its last operation is complete by the number of operations.

    - `iterations`: number of operations (`-n` of nccl-tests).
    - `over_processes`: how the times of all processes are combined (`-a`): their mean, the
      smallest, the largest, or that of the first process.
    """

    iterations: Annotated[int, Field(ge=1, le=MOST_ITERATIONS)] = ITERATIONS
    over_processes: OverProcesses = "mean"


def _usual(value: object) -> object:
    """Return the value of `timing`; for `throughput`, an older name of the default, an empty
    mapping.
    """
    return {} if value == "throughput" else value


Timing = Annotated[TimedOperations | Literal["single"], BeforeValidator(_usual)]


class Workload(Model):
    """A collective that is timed as nccl-tests would time it."""

    collective: CollectiveName
    sizes: SizeRange | ListOf[Bytes] | Bytes = Field(
        default_factory=lambda: SizeRange.model_validate({"from": 8, "to": 2**30})
    )
    dtype: Dtype = "float"
    algorithm: str = "auto"
    code: str = ""  # the text of the Python file with the user's own algorithm
    protocol: Literal["auto", "LL", "LL128", "Simple"] = "auto"
    parameters: dict[str, Any] = Field(default_factory=dict)
    root: Index = 0
    ranks: ListOf[Index] | None = None
    split: str | None = None
    pairs: ListOf[ListOf[Index]] = ()
    matrix: ListOf[ListOf[Index]] = ()
    timing: Timing | None = (
        None  # the older place of `timing`; the scenario moves it to the new one
    )

    @model_validator(mode="after")
    def _check(self) -> "Workload":
        """Raise an error for sizes, ranks, pairs or an algorithm that are invalid in themselves."""
        if isinstance(self.sizes, tuple) and not self.sizes:
            raise FieldError("expected at least one size, got an empty list", "sizes")
        if max(self.size_list()) > LARGEST_SIZE:
            raise FieldError("expected at most 16 TiB, which is more than any GPU holds", "sizes")
        if self.ranks is not None and len(set(self.ranks)) < max(1, len(self.ranks)):
            raise FieldError("expected different GPUs, at least one", "ranks")
        for number, pair in enumerate(self.pairs):
            if len(pair) != 2:
                raise FieldError("expected [source, destination]", "pairs", number)
        if self.collective == "p2p" and not self.pairs:
            raise FieldError("p2p needs pairs such as [[0, 1]]", "collective")
        if self.code:
            try:
                own_algorithm_key(self.algorithm, self.code)
            except CollectiveError as error:
                raise FieldError(error.message, "algorithm") from None
        return self

    @property
    def is_nccl(self) -> bool:
        """Whether NCCL runs the collective, and not a textbook algorithm."""
        return self.algorithm in NCCL_NAMES

    @property
    def built_by(self) -> str:
        """The name of the algorithm in the table of algorithms."""
        return own_algorithm_key(self.algorithm, self.code) if self.code else self.algorithm

    def size_list(self) -> list[int]:
        """Return the sizes in bytes, in the order of the file."""
        if isinstance(self.sizes, SizeRange):
            return self.sizes.sizes()
        return list(self.sizes) if isinstance(self.sizes, tuple) else [self.sizes]


def kind_of_workload(value: object) -> str:
    """Return the kind of a workload: `training` if it names a model, `recorded` if it names a
    trace, else `collective`.
    """
    keys: Collection[object] = ()
    if isinstance(value, Mapping):
        keys = value
    elif isinstance(value, Model):
        keys = value.model_fields_set
    if "model" in keys:
        return "training"
    return "recorded" if "trace" in keys else "collective"


def _of_one_kind(value: object) -> object:
    """Return the value of `workload`; refuse one with keys of two kinds, as `--set
    workload.trace=…` may cause.
    """
    keys = value if isinstance(value, Mapping) else ()
    for rival in [key for key in ("trace", "model") if key in keys and "collective" in keys]:
        advice = f"`workload={{{rival}: …}}` replaces all of it"
        raise FieldError(f"a collective has no {rival}; {advice}", rival)
    return value


AnyWorkload = Annotated[
    Annotated[Workload, Tag("collective")]
    | Annotated[Training, Tag("training")]
    | Annotated[Recorded, Tag("recorded")],
    pydantic.Discriminator(kind_of_workload),
    BeforeValidator(_of_one_kind),
]


def _file_of(description: str, read: Callable[[Path], object]) -> BeforeValidator:
    """Return a validator that replaces the path of a file by what `read` returns for it;
    `description` says in errors what the file is.
    """

    def contents(value: object) -> object:
        if not isinstance(value, str):
            raise ValueError(f"expected the path of {description}, got {shown(value)}")
        return read(Path(value))

    return BeforeValidator(contents)


_TEXT = pydantic.WithJsonSchema({"type": "string"})
GraphXml = Annotated[GraphFile, _file_of("NCCL's graph XML", read_graph_file), _TEXT]
TunerFile = Annotated[tuple[TunerRule, ...], _file_of("a tuner table", tuning.read_tuner), _TEXT]


class Nccl(Model):
    """How NCCL runs: its version, its variables, and whether buffers are registered.

    `tuner` is the file of a tuner table, `graph` a file of NCCL's graph XML with channels to run;
    the model holds the contents of the files. NCCL's own variables for these files have the same
    effect.
    """

    version: Annotated[models.Written, pydantic.AfterValidator(_version)] = str(NEWEST)
    env: dict[str, models.Written] = Field(default_factory=dict)
    registration: Literal["none", "local"] = "none"
    tuner: TunerFile = ()
    graph: GraphXml | None = None

    @pydantic.field_validator("env")
    @classmethod
    def _understood(cls, env: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        """Raise an error for variables whose values NCCL does not accept."""
        version = parse_version(info.data.get("version", str(NEWEST)))
        wrong = list[FieldError]()
        for name, value in env.items():
            try:
                environment.settings_from({name: value}, version)
            except InputError as error:
                wrong.append(FieldError(str(error).removeprefix(f"{name}: "), name))
        if wrong:
            raise FieldError(wrong[0].message, *wrong[0].path, more=wrong[1:])
        try:
            environment.settings_from(env, version)
        except InputError as error:
            raise FieldError(str(error)) from None
        return env

    @model_validator(mode="after")
    def _check(self) -> "Nccl":
        """Read the tuner table and the graph that variables of NCCL name."""
        named = self.env.get(TUNER_VARIABLE)
        if named and not self.tuner:  # the variable of NCCL's example tuner plugin
            object.__setattr__(self, "tuner", tuning.read_tuner(Path(named)))
        named = self.env.get(GRAPH_VARIABLE)
        if named and self.graph is None:
            object.__setattr__(self, "graph", read_graph_file(Path(named)))
        return self


LaunchStyle = Literal["process_per_gpu", "single_process", "cuda_graph", "unknown"]


class LaunchCosts(Model):
    """How operations are launched, and how long it takes.

    - `style`: by one process per GPU, also as a CUDA graph, or by one process per node. If it is
      `unknown`, both are simulated (`tasks/unknown_launch.py`).
    - `host`, `kernel`: seconds of a launch on the host and on the GPU. By default, NCCL's
      algorithms take the times of NCCL, and textbook algorithms none.
    """

    style: LaunchStyle = "process_per_gpu"
    host: Seconds | None = None
    kernel: Seconds | None = None


def _on_top(value: object) -> tuple[str, float]:
    """Parse an amount of noise: ("part", fraction of a time), or ("time", seconds)."""
    if isinstance(value, tuple):  # it was validated before
        return value
    if isinstance(value, str) and value.strip().endswith("s"):
        return "time", parse_time(value)
    return "part", parse_ratio(value, allow_zero=True)


def _text(path: Path) -> str:
    """Return the text of a file; raise a ValueError if it cannot be read, as validators do."""
    try:
        return text_of(path)
    except InputError as error:
        raise ValueError(f"{path}: {error.message}") from None


def _lines(value: object) -> object:
    """Return the amounts of noise in a file, one per line, all fractions or all times."""
    if isinstance(value, tuple):
        return value
    path = Path(str(value))
    if not path.is_file():
        raise ValueError(f"no such file: {value}")
    values = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        try:
            if line.strip():
                values.append(_on_top(line.strip()))
        except ValueError as error:
            raise ValueError(f"{value}, line {number}: {error}") from None
    if len({kind for kind, _ in values}) != 1:
        raise ValueError(f"{value}: expected values of one kind, one a line, such as 2us or 1%")
    return tuple(values)


OnTop = Annotated[tuple[str, float], models.Quantity(_on_top, "2%", "3us")]


class Normal(Model):
    """A normal distribution; negative values are replaced by 0."""

    mean: OnTop | None = None
    sigma: OnTop


class LogNormal(Model):
    """A lognormal distribution, by its median and the standard deviation of the logarithm."""

    median: OnTop
    sigma: Annotated[float, Field(gt=0, le=10, strict=False)]


class Exponential(Model):
    """An exponential distribution, by its mean."""

    mean: OnTop


class Spread(Model):
    """The noise that is added to a time: a distribution, or samples of a file, one per line.

    With `common: host`, all GPUs of a host have the same sample.
    """

    normal: Normal | None = None
    lognormal: LogNormal | None = None
    exponential: Exponential | None = None
    file: Annotated[Any, BeforeValidator(_lines), _TEXT] = None
    common: Literal["rank", "host"] = "rank"

    @model_validator(mode="after")
    def _has_one_distribution(self) -> "Spread":
        """Raise an error unless exactly one distribution is stated, with parameters of one kind."""
        names = ("normal", "lognormal", "exponential", "file")
        set_names = [name for name in names if getattr(self, name) is not None]
        if len(set_names) != 1:
            got = " and ".join(set_names) or "none"
            raise FieldError(f"expected one of {', '.join(names)}, got {got}")
        if len({kind for kind, _ in self._amounts}) > 1:
            raise FieldError("expected a mean and a sigma of one kind: 2% or 3us", set_names[0])
        return self

    @property
    def _amounts(self) -> list[tuple[str, float]]:
        """The parameters of the distribution that are amounts (`_on_top`), or the samples of the
        file.
        """
        distribution = self.normal or self.lognormal or self.exponential
        if distribution is None:
            return list(self.file)
        return [
            amount
            for name in type(distribution).model_fields
            if type(amount := getattr(distribution, name)) is tuple
        ]

    @property
    def kind(self) -> str:
        """`part` for a fraction of a time, or `time` for seconds."""
        return self._amounts[0][0]

    def draw(self, random: "np.random.Generator", size: int) -> "NDArray[np.float64]":
        """Return `size` random samples, none below 0."""
        values = np.array([value for _, value in self._amounts])
        drawn: NDArray[np.float64] = random.choice(values, size)
        if self.lognormal is not None:
            drawn = values[0] * np.exp(self.lognormal.sigma * random.standard_normal(size))
        elif self.exponential is not None:
            drawn = values[0] * random.standard_exponential(size)
        elif self.normal is not None:
            mean = values[0] if len(values) > 1 else 0.0
            drawn = np.maximum(0.0, mean + values[-1] * random.standard_normal(size))
        return drawn


PRESETS = ("quiet", "production")
SAMPLES = 100  # samples of noise by default


def _preset(value: object) -> object:
    """Return the distributions of the preset that `value` names, from the table of constants;
    another value is returned as it is.
    """
    if not isinstance(value, str):
        return value
    if value not in PRESETS:
        names = ", ".join(PRESETS)
        raise ValueError(f"expected {names} or distributions, got {value}{suggest(value, PRESETS)}")
    figures = {}
    for kind, unit, of in (("compute", "%", 1e2), ("launch", "us", 1e6)):
        name = f"noise.{value}.{kind}"
        median = f"{constants.value(f'{name}.median') * of:.9g}{unit}"
        figures[kind] = {"lognormal": {"median": median, "sigma": constants.value(f"{name}.sigma")}}
    return figures


class Noise(Model):
    """Random delays, drawn for each rank or each host.

    `compute` is a fraction of the time of kernels, `link` a fraction of the bytes on links,
    `launch` a time before an operation or a step.
    """

    compute: Spread | None = None
    launch: Spread | None = None
    link: Spread | None = None

    @model_validator(mode="after")
    def _kinds(self) -> "Noise":
        """Raise an error if a distribution is a time where a fraction is needed, or the reverse."""
        for name, wanted in (("compute", "part"), ("launch", "time"), ("link", "part")):
            spread = getattr(self, name)
            if spread is not None and spread.kind != wanted:
                expected = "a part such as 2%" if wanted == "part" else "a time such as 3us"
                raise FieldError(f"expected {expected}, got a {spread.kind}", name)
        return self

    @property
    def draws(self) -> dict[str, Any]:
        """By `compute`, `launch` and `link`, if they are set: (function that draws random samples,
        whether all GPUs of a host have the same sample).
        """
        spreads = {name: getattr(self, name) for name in type(self).model_fields}
        return {
            name: (spread.draw, spread.common == "host")
            for name, spread in spreads.items()
            if spread is not None
        }


JobName = Annotated[str, Field(pattern=r"^[^\W_][\w.-]*$")]


class JobConfig(Model):
    """One of several jobs of a cluster.

    It states a number of hosts and how they are chosen among the free ones, or it lists its hosts.
    Its operations or steps run one after the other from `start` on: `repeat` of them, or until the
    longest of the other jobs is finished.
    """

    name: JobName
    nodes: Annotated[int, Field(ge=1)] | None = None
    placement: Literal["contiguous", "spread", "random"] | ListOf[Index] = "contiguous"
    workload: dict[str, Any]
    start: Seconds = 0.0
    repeat: Annotated[int, Field(ge=1, le=100_000)] | None = None


class BackgroundConfig(Model):
    """Messages of one `size` between hosts, which begin at random times.

    The traffic of each sender is the fraction `load` of the rate of its NICs (for an incast, of the
    rate of the target's NICs).
    """

    pattern: Literal["uniform", "permutation", "incast", "hotspot"]
    load: Part
    size: Bytes = 2**20
    seed: Index = 0
    hosts: Literal["all", "unused"] | ListOf[Index] = "all"
    target: Index | None = None

    @model_validator(mode="after")
    def _aimed(self) -> "BackgroundConfig":
        """Raise an error for a target if the pattern has none."""
        if self.target is not None and self.pattern not in ("incast", "hotspot"):
            raise FieldError(f"{self.pattern} has none, only incast and hotspot", "target")
        return self


class Scenario(Model, json_schema_extra=lambda schema: schema["required"].remove("workload")):
    """One scenario file."""

    name: JobName | None = None
    cluster: ClusterConfig
    workload: AnyWorkload
    jobs: ListOf[JobConfig] = ()
    job: str = ""  # the name of the job that has this workload
    background: ListOf[BackgroundConfig] = ()
    nccl: Nccl = Field(default_factory=Nccl)
    launch: LaunchCosts | LaunchStyle = "process_per_gpu"
    host: HostCosts | None = None  # by default that of the machine, or what most hosts take
    timing: Timing = Field(default_factory=TimedOperations)  # how a collective is timed
    sweep: dict[str, Any] = Field(default_factory=dict)  # read by `read_sweep`
    outputs: ListOf[
        Literal[
            "csv",
            "plots",
            "trace",
            "trace_per_rank",
            "parquet",
            "chakra",
            "connections",
            "goal",
            "msccl",
            "mscclpp",
            "report",
        ]
    ] = ("csv", "plots", "trace")
    measured: str | None = None  # a log, JSON or CSV of the same runs on hardware
    seed: Index = 0
    prices: str | None = None
    report: dict[Literal["conditions", "choices"], ListOf[str]] = Field(default_factory=dict)
    fold: Literal["auto", "off"] = "auto"  # whether identical ranks and channels are simulated once
    exact: bool = False  # whether a task that needs an extrapolation is an error
    noise: Annotated[Noise, BeforeValidator(_preset)] | None = None
    samples: Annotated[int, Field(ge=1, le=100_000)] | None = None  # samples of noise
    limits: bool = False  # whether rows state a lower bound on the time of any algorithm

    @model_validator(mode="before")
    @classmethod
    def _moved(cls, values: Any) -> Any:
        """Return the keys of a file with `workload.timing`, an older place, moved to `timing`."""
        work = values.get("workload") if isinstance(values, dict) else None
        if not isinstance(work, dict) or "timing" not in work:
            return values
        if "timing" in values:
            raise FieldError("expected one of timing and workload.timing, got both", "timing")
        others = {key: value for key, value in work.items() if key != "timing"}
        return {**values, "workload": others, "timing": work["timing"]}

    @model_validator(mode="before")
    @classmethod
    def _seeded(cls, values: Any) -> Any:
        """Return the keys of a file with the scenario's seed also in the cluster and the fabric,
        unless these have seeds of their own.

        The seed decides how hosts are placed at random and how routes are hashed.
        """
        seed = values.get("seed") if isinstance(values, dict) else None
        cluster = values.get("cluster") if seed else None
        if type(seed) is not int or seed < 0 or not isinstance(cluster, dict):
            return values
        cluster = {"seed": seed, **cluster}
        if isinstance(cluster.get("fabric"), dict):
            fabric = cluster["fabric"] = {"seed": seed, **cluster["fabric"]}
            if isinstance(fabric.get("between"), dict):
                fabric["between"] = {"seed": seed, **fabric["between"]}
        return {**values, "cluster": cluster}

    @model_validator(mode="after")
    def _fits(self) -> "Scenario":
        """Raise an error for keys that contradict each other."""
        if "chakra" in self.outputs and isinstance(self.workload, Workload):
            raise FieldError("chakra is for training steps, not for a collective", "outputs")
        step = not isinstance(self.workload, Workload)
        ours = ("connections", "msccl", "mscclpp")
        for output in [name for name in ours if name in self.outputs and step]:
            raise FieldError(f"{output}: only a collective has it, no step", "outputs")
        with_loss = [number for number, fault in enumerate(self.cluster.faults) if fault.loss]
        if with_loss and self.retries is None:
            message = "only InfiniBand and RoCE send again what is lost after NCCL_IB_TIMEOUT"
            raise FieldError(message, "cluster", "faults", with_loss[0], "loss")
        if self.timed and self.noise is not None:
            raise FieldError("goes with no faults that begin at a time", "noise")
        if self.samples is not None and self.noise is None:
            message = "without noise all samples have the same time; add noise: production"
            raise FieldError(message, "samples")
        return self

    @property
    def is_single(self) -> bool:
        """Whether one operation from an idle cluster is timed, and not many back to back."""
        return self.timing == "single" or self.timed

    @property
    def collective(self) -> Workload:
        """The workload of a scenario that times a collective."""
        assert isinstance(self.workload, Workload)
        return self.workload

    @property
    def shared(self) -> bool:
        """Whether other jobs or background messages use the cluster at the same time."""
        return bool(self.jobs or self.background)

    @property
    def timed(self) -> bool:
        """Whether a fault begins while an operation or a step runs."""
        return any(fault.at is not None for fault in self.cluster.faults)

    @property
    def retries(self) -> Retries | None:
        """The retry timer for lost messages; None if NCCL does not drive the transport over
        verbs.
        """
        usual = self.cluster.usual_transport if self.cluster.members else ""
        fabric = self.cluster.fabric
        if ((fabric.transport if fabric else None) or usual) not in ("infiniband", "roce"):
            return None
        version = parse_version(self.nccl.version)
        settings = environment.settings_from(self.nccl.env, version)
        stated = settings.ib_timeout
        power = facts_of(version).ib_timeout if stated is None else stated
        return Retries(4.096e-6 * 2**power, settings.ib_retries)

    @property
    def disturbances(self) -> "tuple[dict[str, Any], int, int] | None":
        """How noise is drawn (`Noise.draws`), the number of samples and the seed; None without
        noise.
        """
        if self.noise is None:
            return None
        return self.noise.draws, self.samples or SAMPLES, self.seed

    def launch_costs(self) -> LaunchCosts:
        """Return the section `launch` as an object, also if the file only names a style."""
        if isinstance(self.launch, LaunchCosts):
            return self.launch
        return LaunchCosts(style=self.launch)


def cluster_label(config: ClusterConfig) -> str:
    """Return the names of the machines, or of the graph, as a label."""
    if config.graph is not None:
        return config.graph.kind
    return " + ".join(dict.fromkeys(group.loaded.name for group in config.members))


def node_count(config: ClusterConfig) -> int:
    """Return the number of hosts; a graph counts as one."""
    return 1 if config.graph is not None else sum(group.nodes for group in config.members)


def hosts_label(config: ClusterConfig) -> str:
    """Return the number of hosts of each machine as a label: `2 x dgx-h100 + 1 x dgx-a100`."""
    if config.graph is not None:
        return f"1 x {cluster_label(config)}"
    counts = dict[str, int]()
    for group in config.members:
        counts[group.loaded.name] = counts.get(group.loaded.name, 0) + group.nodes
    return " + ".join(f"{count} x {name}" for name, count in counts.items())


def cluster_question(config: ClusterConfig) -> dict[str, Any]:
    """Return the section `cluster` as plain values, with the contents of its machine files."""
    section: dict[str, Any] = config.model_dump(mode="json", exclude={"machine", "groups"})
    section["hosts"] = [
        group.model_dump(mode="json") | {"machine": group.loaded.machine.model_dump(mode="json")}
        for group in config.members
    ]
    return section


def line_rate(config: ClusterConfig) -> float | None:
    """Return the rate in GB/s with which a bus bandwidth is compared; None if there is no single
    one.

    With several hosts it is the rate of all NICs of a host, else that of a GPU's links.
    """
    if config.graph is not None:
        graph: Any = config.graph
        return graph.bandwidth / 1e9 if graph.kind == "switch" else None
    machine = config.members[0].loaded.machine
    if node_count(config) > 1:
        nics = machine.nics
        chosen = config.nic_rate
        if len(config.members) > 1 or nics is None:
            return None
        rates = (chosen,) * nics.count if chosen else nics.rates
        return sum(rates[: config.nics_per_node]) / 1e9
    scale_up = machine.scale_up
    if scale_up is None or scale_up.links is None or not scale_up.switches:
        return None
    return scale_up.links * scale_up.link_bandwidth / 1e9
