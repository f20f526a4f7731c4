"""Whole values of questions that are drawn at random: all that can be asked of what stands between
each and its answer, by package (see `tests.pins` and `tests.whole`). Where what is pinned elsewhere
shows what a test thought of, these look at everything else, at odd corners of every key."""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from netsim.base import units
from netsim.base.errors import NetsimError
from netsim.base.files import preset_names
from netsim.nccl.facts import ALGORITHMS, PROTOCOLS
from netsim.scenario.cells import expand
from netsim.scenario.training import Straggler, Training
from netsim.tasks.resolve import resolve
from netsim.tasks.row import row_of_size
from netsim.training import resolve as resolved_steps
from netsim.training.resolve import memories, resolve_step
from netsim.training.run import details_of, simulate_step
from netsim.workloads.setting import Setting
from netsim.workloads.step import training_step
from netsim.yamlio.read import parse_source
from tests.collectives.collective_cases import TABLE
from tests.pins import Found, family
from tests.timing.cells import call_at, folded, timed
from tests.topology.test_fabrics import FABRICS
from tests.training.steps import H100, SMALL, setting
from tests.whole import Whole

Draw = random.Random
COLLECTIVES = (
    "all_reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "sendrecv",
    "gather",
    "scatter",
)
SIZES = ("8", "1000", "4KiB", "40KB", "64KiB", "300KiB", "1000000")


def some(draw: Draw, chance: float, text: str, *values: Any) -> list[str]:
    """A key with one of its values, or nothing."""
    return [text.format(draw.choice(values))] if draw.random() < chance else []


def work(draw: Draw, textbook: bool) -> str:
    """A collective."""
    name, algorithm = draw.choice(TABLE) if textbook else (draw.choice(COLLECTIVES), "")
    if name == "alltoallv":
        name = "alltoall"
    told = [f"collective: {name}", f"sizes: [{draw.choice(SIZES)}]"]
    told += [f"algorithm: {algorithm}"] if algorithm else []
    if not textbook and name == "all_reduce":
        told += some(draw, 0.6, "algorithm: {}", *ALGORITHMS, "Ring", "Tree")
    if not textbook:
        told += some(draw, 0.3, "protocol: {}", *PROTOCOLS)
    told += some(draw, 0.3, "dtype: {}", "half", "double", "f8e4m3", "int8", "uint64")
    told += some(draw, 0.2, "timing: {}", "single")
    if name in ("broadcast", "reduce", "gather", "scatter"):
        told += some(draw, 0.7, "root: {}", 0, 1, 1, 3)
    if name == "p2p":
        told += ["pairs: [[0, 1], [1, 0], [0, 1]]"]
    return ", ".join([*told, *some(draw, 0.15, "{}", *PARTS)])


PARTS = ("ranks: [3, 0, 1]", "ranks: [1, 2]", "split: MOD 2", "split: DIV 2", "split: AND 0x3")
GRAPHS = (
    "{{kind: switch, gpus: {}, bandwidth: 50GB/s, latency: 1us}}",
    "{{kind: ring, gpus: {}, bandwidth: 25GB/s, latency: 700ns}}",
    "{{kind: full-mesh, gpus: {}, bandwidth: 40GB/s, latency: 1us}}",
    "{{kind: torus, dims: [2, {}], bandwidth: 30GB/s, latency: 1us}}",
)


def graph(draw: Draw) -> str:
    """A plain graph and a textbook algorithm on it."""
    place = draw.choice(GRAPHS).format(draw.randint(2, 9))
    faults = some(draw, 0.3, "faults: [{}]", "{gpu: gpu1, slowdown: 1.5}")
    return scenario(", ".join([f"graph: {place}", *faults]), work(draw, True), draw)


def hosts(draw: Draw, machine: str, most: int, textbook: bool = False) -> str:
    """Some hosts of a machine, and what runs on them."""
    told = [f"machine: {machine}", f"nodes: {draw.randint(1, most)}"]
    told += some(draw, 0.6, "gpus_per_node: {}", 1, 2, 2, 3, 4)
    told += some(draw, 0.25, "nics_per_node: {}", 1, 2, 4)
    told += some(draw, 0.2, "nic: {}", "100Gbps", "200Gbps", "25Gbps", "800Gbps")
    told += some(draw, 0.5, "fabric: {}", *FABRICS[:15], *MORE_FABRICS)
    told += some(draw, 0.3, "faults: [{}]", *FAULTS)
    told += some(draw, 0.1, "p2p: {}", "false")
    return scenario(", ".join(told), work(draw, textbook), draw)


def mixed(draw: Draw) -> str:
    """Hosts that are not alike, or not where one expects them."""
    one, other = draw.sample(("dgx-h100", "dgx-a100", "hgx-h200", "hgx-a800", "l40s-pcie-x8"), 2)
    per = draw.choice((1, 2, 2, 4))
    few = f"machine: {one}, nodes: {draw.randint(2, 5)}, gpus_per_node: {per}"
    more = draw.choice((per, 3))
    told = draw.choice(
        (
            f"groups: [{{machine: {one}, nodes: {draw.randint(1, 2)}, gpus_per_node: {per}}}, "
            f"{{machine: {other}, nodes: {draw.randint(1, 2)}, gpus_per_node: {more}}}]",
            f"{few}, placement: {draw.choice(('spread', 'random', '[3, 0, 1, 2, 4]'))}, "
            f"seed: {draw.randint(0, 9)}, fabric: {{kind: leaf-spine, nodes_per_leaf: 2}}",
            f"{few}, sites: {{count: 2, distance: {draw.choice((1, 100))}km, bandwidth: 400Gbps}}",
            f"machine: {one}, nodes: 2, gpus: {draw.choice(([1, 4, 6], [0, 7], [2, 3, 5, 6]))}",
            f"{few}, overrides: [{{node: 1, nics: {draw.choice(([0], [1, 2], [0, 2, 3]))}}}]",
            f"machine: gb200-nvl72, nodes: {draw.randint(2, 4)}, fabric: {{kind: nvlink-domain, "
            f"hosts: {draw.choice((1, 2, 3))}}}",
        )
    )
    return scenario(told, work(draw, draw.random() < 0.3), draw)


MORE_FABRICS = (
    "{kind: rail-optimized, sharp: true}",
    "{kind: leaf-spine, nodes_per_leaf: 1, routing: ecmp}",
    "{kind: leaf-spine, nodes_per_leaf: 2, routing: adaptive, transport: roce}",
    "{kind: leaf-spine, nodes_per_leaf: 1, routing: spray, transport: efa}",
    "{kind: fat-tree, k: 6, routing: ecmp}",
    "{kind: single-switch, transport: tcp}",
    "{kind: dragonfly, routers: 2, ports_per_router: 4, global_links: 2, routing: valiant}",
)
FAULTS = (
    "{gpu: node0.gpu0, slowdown: 1.3}",
    "{nic: node0.nic0}",
    "{link: 'node0.nic0-*', bandwidth: 50%}",
    "{link: 'node1.nic*-*', latency: 2us}",
    "{link: 'leaf0-spine*', bandwidth: 25%}",
    "{link: 'node0.nic0-*', bandwidth: 0%, at: 20us, for: 50us, loss: false}",
)


def scenario(cluster: str, asked: str, draw: Draw) -> str:
    """A scenario, perhaps with more that is said of NCCL and of launches."""
    lines = [f"cluster: {{{cluster}}}", f"workload: {{{asked}}}"]
    lines += some(
        draw,
        0.3,
        "launch: {}",
        "single_process",
        "cuda_graph",
        "{style: process_per_gpu, host: 9us, kernel: 4us}",
    )
    nccl = some(draw, 0.3, "version: '{}'", "2.10", "2.14", "2.18", "2.19", "2.21", "2.23", "2.28")
    nccl += some(draw, 0.4, "env: {{{}}}", *VARIABLES)
    nccl += some(draw, 0.1, "registration: {}", "local")
    lines += [f"nccl: {{{', '.join(nccl)}}}"] if nccl else []
    lines += some(draw, 0.1, "limits: {}", "true")
    return "\n".join([*lines, ""])


VARIABLES = (
    "NCCL_MIN_NCHANNELS: 4, NCCL_MAX_NCHANNELS: 6",
    "NCCL_NTHREADS: 128",
    "NCCL_BUFFSIZE: 1048576",
    "NCCL_NVLS_ENABLE: 0",
    "NCCL_P2P_DISABLE: 1",
    "NCCL_SHM_DISABLE: 1, NCCL_P2P_DISABLE: 1",
    "NCCL_PXN_DISABLE: 1",
    "NCCL_CROSS_NIC: 1",
    "NCCL_IB_QPS_PER_CONNECTION: 4",
    "NCCL_ALGO: ^Tree",
    "NCCL_COLLNET_ENABLE: 1",
    "NCCL_NET_GDR_LEVEL: LOC",
    "NCCL_P2P_LEVEL: PXB",
    "NCCL_NCHANNELS_PER_NET_PEER: 1",
    "NCCL_LL_BUFFSIZE: 65536",
    "NCCL_IB_HCA: mlx5",
)


def asked(text: str) -> Iterator[Any]:
    """What a scenario becomes, one after the other; the words where that is refused."""
    try:
        one = resolve(expand(parse_source(text, "drawn.yaml"))[0])
        yield one
        (size,) = one.cell.scenario.collective.size_list()
        yield call_at(one, size)
        yield one.planned(size)
        yield folded(one, size)
        yield timed(one, size)
        yield row_of_size(one, size, engine="compiled")
    except (NetsimError, ValueError) as error:
        yield str(error)


MODELS = (
    "{layers: 4, hidden: 512, heads: 8, kv_heads: 4, ffn: 1024, vocabulary: 1000, sequence: 256}",
    "{layers: 4, hidden: 256, heads: 8, ffn: 768, vocabulary: 999, gated: false, biases: true, "
    "tied: true, positions: 128, sequence: 128}",
)
EXPERTS = (
    "{layers: 2, hidden: 512, heads: 8, kv_heads: 8, ffn: 1024, vocabulary: 1000, sequence: 256, "
    "experts: 8, top_k: 2, expert_ffn: 256}",
    "{layers: 4, hidden: 256, heads: 8, head_size: 64, ffn: 512, vocabulary: 500, sequence: 64, "
    "experts: 4, top_k: 1, shared_ffn: 128, dense_layers: 1}",
)
LAYERS = (
    "[{parameters: 1000000, forward: 1ms, backward: 2ms, output: 4096, repeat: 4}, "
    "{parameters: 300, flops: 1e9, activation: 1000}]",
)
DEGREES = {
    MODELS: (
        "dp: 8",
        "dp: 4, tp: 2",
        "tp: 2, pp: 2, dp: 2",
        "pp: 4, dp: 2",
        "cp: 2, dp: 4",
        "tp: 8",
        "cp: 2, tp: 2, pp: 2",
        "pp: 2, dp: 4",
    ),
    EXPERTS: ("ep: 4, dp: 8", "ep: 2, dp: 4", "ep: 2, tp: 2, dp: 2", "ep: 2, pp: 2, dp: 4"),
    LAYERS: ("dp: 8", "pp: 2, dp: 4"),
}


def step(draw: Draw) -> str:
    """A training step on eight GPUs."""
    models = draw.choice((MODELS, MODELS, MODELS, EXPERTS, EXPERTS, LAYERS))
    given = [draw.choice(DEGREES[models])]
    given += some(
        draw,
        0.5,
        "data: {}",
        "allreduce",
        "ddp",
        "parameter-server",
        "zero1",
        "zero2",
        "zero3",
        "distributed-optimizer",
        "fsdp",
        "fsdp2",
    )
    given += some(draw, 0.3, "sequence_parallel: {}", "true")
    given += some(draw, 0.2, "tensor_overlap: {}", "none", "pipelined")
    given += some(draw, 0.2, "context: {}", "all_gather", "a2a")
    given += some(
        draw,
        0.2,
        "{}",
        "expert_tensor: false",
        "expert_overlap: true",
        "dispatcher: deduplicated",
        "order: dp-tp-cp-ep-pp",
    )
    lines = [f"model: {draw.choice(models)}", f"batch: {draw.choice((8, 16, 16, 32))}",
             f"parallelism: {{{', '.join(given)}}}"]  # fmt: skip
    lines += some(draw, 0.3, "micro_batch: {}", 2)
    lines += some(draw, 0.3, "dtype: {}", "half", "float", "tf32", "fp8", "mxfp8", "nvfp4")
    lines += some(
        draw,
        0.3,
        "pipeline: {{{}}}",
        "schedule: gpipe",
        "schedule: zb-h1",
        "chunks: 2",
        "schedule: naive",
        "schedule: 1f1b, blocking_sends: true",
    )
    lines += some(draw, 0.4, "replicas: {{{}}}", *REPLICAS)
    lines += some(draw, 0.2, "compression: {{kind: {}}}", "fp16", "bf16", "fp8", "top-k")
    lines += some(
        draw,
        0.4,
        "recompute: {}",
        "selective",
        "full",
        "non-reentrant",
        "ops",
        "[core_attn, mlp]",
        "[layernorm, moe_act]",
        "[moe]",
    )
    lines += some(draw, 0.4, "{}", *MORE)
    lines += some(draw, 0.2, "stragglers: [{}]", "{rank: 3, slowdown: 1.5}")
    place = draw.choice(
        (
            "machine: dgx-h100",
            "machine: dgx-a100, nodes: 2, gpus_per_node: 4",
            "machine: dgx-h100, nodes: 4, gpus_per_node: 2, fabric: "
            "{kind: leaf-spine, nodes_per_leaf: 1}",
        )
    )
    work = "\n  ".join([*lines, "allow_oom: true"])
    return f"cluster: {{{place}}}\nworkload:\n  {work}\n"


REPLICAS = (
    "bucket: 262144, first_bucket: 65536",
    "bucket: 0",
    "overlap: false",
    "no_sync: true",
    "no_sync: false",
    "reshard: false",
    "backward_prefetch: post",
    "backward_prefetch: none",
    "limit_all_gathers: false",
    "overlap_gather: true",
    "shard: 2",
    "shard: 4",
    "sync_every: 3, islands: 2",
    "sync_every: 2, islands: 2, overlap_sync: true",
    "delayed: true",
    "gradient_dtype: float",
    "gather: fp8",
)
MORE = (
    "attention: flash2",
    "attention: unfused",
    "elementwise: eager",
    "projections: apart",
    "experts: fused",
    "loss: eager",
    "loss: kernel",
    "imbalance: 1.5",
    "optimizer: sgd",
    "optimizer: sgd-momentum",
    "optimizer: adam-eager",
    "connections: 1",
    "sequence: 96",
    "compute: {gemm_efficiency: 50%, kernel: 3us}",
    "extras: [{preset: gradient-norm}]",
    "extras: [{preset: sync-batch-norm}]",
    "extras: [{preset: parameter-broadcast}]",
    "extras: [{collective: all_gather, group: dp, bytes: 4096, when: backward}]",
    "scaling: block",
    "scaling: tensor",
)


def of_step(text: str) -> Iterator[Any]:
    """What the scenario of a step becomes."""
    try:
        resolved = resolve_step(expand(parse_source(text, "drawn.yaml"))[0])
        yield resolved
        done = simulate_step(resolved)
        yield done
        yield details_of(done)
        yield memories(resolved.setting)
    except (NetsimError, ValueError) as error:
        yield str(error)


# **** Families ****


def values(
    texts: Iterable[str], becomes: Callable[[str], Iterator[Any]]
) -> Iterator[tuple[str, str]]:
    """Digests by package of what scenarios become, and the words of those that are refused."""
    whole, words = Whole(), []
    for text in texts:
        for value in becomes(text):
            whole.add(value)
            words += [value] if isinstance(value, str) else []
    yield from whole.told().items()
    yield "refused", "\n".join(words)


MACHINES = tuple(name for name in preset_names("topologies") if name not in ("dgx-b200", "dgx-2"))
COMMON = ("dgx-h100", "dgx-a100", "gh200-x4", "hgx-b300", "l40s-pcie-x8", "mi300x", "dgx-1-v100")


def drawn(name: str, make: Callable[[Draw], str], count: int, seed: int) -> Iterator[str]:
    """Scenarios of a kind."""
    for number in range(count):
        yield make(random.Random(f"{name} {seed} {number}"))


PART = 6  # questions of a family: few, so that one that is asked alone takes little
KINDS: dict[str, tuple[Callable[[Draw], str], int]] = {  # with how many families there are
    "graphs": (graph, 6),
    "hosts": (lambda draw: hosts(draw, draw.choice(COMMON), 4), 6),
    "a host": (lambda draw: hosts(draw, draw.choice(MACHINES), 1), 3),
    "textbook hosts": (lambda draw: hosts(draw, draw.choice(COMMON), 3, True), 3),
    "mixed": (mixed, 4),
    "steps": (step, 2),
}

for _name, (_make, _families) in KINDS.items():
    for _seed in range(_families):
        family(
            lambda n=_name, m=_make, s=_seed: values(
                drawn(n, m, PART - 2 * (n == "steps"), s), of_step if n == "steps" else asked
            ),
            f"drawn {_name} {_seed + 1}",
        )


# **** What does not fit ****


def odd_setting(draw: Draw, even: bool) -> Setting:
    """A training step with any of its choices, whose numbers divide one another or may not."""
    model = replace(
        SMALL,
        layers=draw.choice((1, 2, 3, 4, 6, 8)),
        heads=draw.choice((2, 4, 6, 8, 12)),
        kv_heads=draw.choice((1, 2, 3, 4, 8)),
        ffn=draw.choice((96, 100, 128)),
        experts=draw.choice((0, 0, 4, 6)),
        top_k=draw.choice((1, 2, 3)),
        expert_ffn=64,
        causal=draw.random() < 0.7,
    )
    chunks = draw.choice((1, 1, 2))
    schedules = ("1f1b", "gpipe", "zb-h1") if chunks == 1 else ("interleaved",)
    degrees = {axis: draw.choice((1, 1, 2, 3, 4)) for axis in ("tp", "cp", "ep", "pp", "dp")}
    chosen = {name: draw.choice(some) for name, some in CHOICES.items() if draw.random() < 0.4}
    return setting(
        model=replace(model, layers=4, heads=8, kv_heads=4, ffn=128) if even else model,
        **({axis: 1 << (degree > 2) for axis, degree in degrees.items()} if even else degrees),
        batch=8 if even else draw.choice((4, 8, 12)),
        micro=draw.choice((1, 2)),
        sequence=64 if even else draw.choice((6, 12, 16, 64)),
        chunks=chunks,
        schedule=draw.choice(schedules),
        roofline=replace(H100, flops=H100.flops | {"fp8": 1979e12, "half": 989e12}),
        **chosen,
    )


CHOICES: dict[str, tuple[Any, ...]] = {
    "data": ("ddp", "allreduce", "parameter-server", "zero1", "zero2", "zero3", "fsdp", "fsdp2",
             "distributed-optimizer"),
    "dtype": ("half", "float", "fp8"), "gradient_dtype": ("float", "half"),
    "scaling": ("tensor", "row", "block"), "sequence_parallel": (True,),
    "tensor_overlap": ("none", "pipelined"), "context": ("all_gather", "a2a"),
    "recompute": (("selective",), ("full",), ("ops",), ("core_attn", "mlp"), ("layernorm",)),
    "loss": ("eager", "kernel"), "attention": ("unfused", "flash2"), "elementwise": ("eager",),
    "blocking_sends": (False, None), "imbalance": (1.5,), "expert_tensor": (False,),
    "expert_overlap": (True,), "deduplicated": (True,), "fused_experts": (True,),
    "apart": (True,), "optimizer": ("adam-eager", "sgd", "sgd-momentum"),
    "bucket": (0, 2**12, 2**16), "first_bucket": (2**10,), "overlap": (False,),
    "no_sync": (False,), "compression": ("fp16", "bf16", "fp8", "top-k"), "top_k": (0.1,),
    "delayed": (True,), "shard": (2, 3), "reshard": (False,),
    "backward_prefetch": ("post", "none"), "forward_prefetch": (True,),
    "limit_all_gathers": (False,), "islands": (2, 3), "sync_every": (2,), "overlap_sync": (True,),
    "launch": (4e-6,), "wait": (9e-6,), "connections": (1,),
}  # fmt: skip


def misfits_of(made: Setting, work: Training) -> list[list[str]]:
    """The words on what does not fit, by what is asked."""
    asks = (
        resolved_steps._batch(made),
        resolved_steps._transformer_misfits(made, made.model),
        resolved_steps._pipeline(made),
        resolved_steps._stages(made),
        resolved_steps._replicas(work, made),
    )
    return [sorted(map(str, one)) for one in asks]


@family
def misfits() -> Found:
    """Which numbers of steps do not go together, and in which words that is said."""
    work = Training.model_validate({"model": "bert-base", "batch": 8})
    slow = work.model_copy(update={"stragglers": (Straggler(rank=4, slowdown=2.0),)})
    for number in range(12):
        draws = (random.Random(f"{number} {part}") for part in range(50))
        yield f"{number}", [misfits_of(odd_setting(draw, even=False), slow) for draw in draws]


@family
def fitting() -> Found:
    """What steps whose numbers go together compute, exchange and keep."""
    work = Training.model_validate({"model": "bert-base", "batch": 8})
    for number in range(12):
        draws = (random.Random(f"{number} {part}") for part in range(250))
        made = (odd_setting(draw, even=True) for draw in draws)
        some = (one for one in made if one.grid.size <= 8 and not any(misfits_of(one, work)))
        yield f"{number}", [[memories(one), training_step(one).entries] for one in islice(some, 8)]


PARSERS = (
    units.parse_bandwidth,
    units.parse_time,
    units.parse_flops,
    units.parse_length,
    units.parse_power,
    units.parse_size,
    units.parse_cli_size,
    units.parse_cli_sizes,
    units.parse_ratio,
)
NUMBERS = ["0", "1", "2", "1.5", "0.25", "1e3", "64", "1023", "1024", "-1", "1_000", "007"]
UNITS = [
    "B",
    "b",
    "k",
    "K",
    "KB",
    "KiB",
    "M",
    "GiB",
    "G",
    "GB/s",
    "Gbps",
    "Gb/s",
    "Tbps",
    "%",
    "s",
    "ms",
    "us",
    "ns",
    "min",
    "km",
    "m",
    "W",
    "kW",
    "TFLOPS",
    "x",
    "Kib",
]
RANGES = [
    "8:64",
    "8:64:2",
    "8:1K:4",
    "1K:8",
    "8:8",
    "8:9:3",
    "8,64,1K",
    "8,",
    ":",
    "1:4:1",
    "1:5:1K",
]


@family
def quantities() -> Found:
    """What numbers with units are read as, and how numbers are written."""
    for parse in PARSERS:
        texts = [f"{number}{unit}" for number in NUMBERS for unit in ("", " KiB", *UNITS)]
        texts += RANGES if parse is units.parse_cli_sizes else ()
        bare = () if "cli" in parse.__name__ else (0, 1, 7.5, -3, True, None)
        yield parse.__name__, [attempt(parse, one) for one in (*texts, *bare)]
    sizes = [k * 2**n + d for n in range(0, 42, 3) for k in (1, 3, 5) for d in (0, 1)]
    yield "sizes", [units.format_size(one) for one in sizes]
    small = [k * 10.0**n for n in range(-10, 4) for k in (0.99996, 1.0, 1.5, 9.9994, 9.9996)]
    yield "times", [units.format_time(one) for one in (0.0, *small)]
    rates = [one * 1e11 for one in small]
    yield (
        "rates",
        [units.format_bandwidth(one, bits=bits) for one in rates for bits in (False, True)],
    )
    yield (
        "steps",
        [
            units.size_steps(first, last, factor)
            for first in (1, 3, 8)
            for last in (8, 9, 100, 1 << 12)
            for factor in (2, 3, 10)
        ],
    )


def attempt(parse: Callable[[Any], Any], value: object) -> object:
    """What a value is read as, or the words with which it is refused."""
    try:
        return parse(value)
    except (NetsimError, ValueError) as error:
        return str(error)
