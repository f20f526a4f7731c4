"""Drawn workloads: collectives with NCCL's and textbook algorithms, and training steps."""

from typing import Any

from tests.same.draw import Draw

Mapping = dict[str, Any]

TEXTBOOK_ALGORITHMS = {
    "all_reduce": (
        "ring",
        "tree",
        "double-binary-tree",
        "halving-doubling",
        "direct",
        "hierarchical",
        "parameter-server",
        "bucket",
        "multi-ring",
        "swing",
        "forest",
        "synth",
    ),
    "all_gather": (
        "ring",
        "recursive-doubling",
        "bruck",
        "direct",
        "bucket",
        "multi-ring",
        "swing",
        "forest",
        "synth",
    ),
    "reduce_scatter": (
        "ring",
        "recursive-halving",
        "direct",
        "bucket",
        "multi-ring",
        "swing",
        "forest",
        "synth",
    ),
    "broadcast": ("ring", "binomial", "scatter-allgather", "forest"),
    "reduce": ("ring", "binomial", "reduce-scatter-gather", "forest"),
    "gather": ("linear", "binomial"),
    "scatter": ("linear", "binomial"),
    "alltoall": ("linear-shift", "pairwise", "bruck", "hierarchical"),
    "alltoallv": ("linear-shift", "pairwise"),
    "sendrecv": ("ring",),
    "p2p": ("direct",),
    "barrier": ("dissemination",),
}
NCCL_COLLECTIVES = (
    "all_reduce",
    "all_reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "alltoall",
    "alltoallv",
    "sendrecv",
    "gather",
    "scatter",
    "p2p",
)
NCCL_ALGORITHMS = ("Ring", "Ring", "Tree", "Tree", "NVLS", "NVLSTree", "PAT")
SIZES = ("8", "1000", "4KiB", "40KB", "64KiB", "300KiB", "1MiB", "5000000", "32MiB", "256MiB")
SMALL_SIZES = SIZES[:6]
DTYPES = ("half", "double", "f8e4m3", "f8e5m2", "int8", "uint8", "int32", "uint64", "bfloat16")
WITH_PROTOCOL = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
MOST_VALUES_OF_MATRIX = 4
PARTS: tuple[Mapping, ...] = (
    {"ranks": [3, 0, 1]},
    {"ranks": [1, 2]},
    {"split": "MOD 2"},
    {"split": "DIV 2"},
    {"split": "AND 0x3"},
)
GROUPS: tuple[Mapping, ...] = (
    {"split": "MOD 2"},
    {"split": "MOD 4"},
    {"split": "DIV 2"},
    {"split": "DIV 4"},
    {"split": "AND 0x1"},
    {"split": "AND 0x2"},
    {"ranks": [3, 0, 1]},
    {"ranks": [2, 0]},
    {"ranks": [0, 2, 1, 3]},
)
NCCL_VERSIONS = (
    "2.10",
    "2.12",
    "2.14",
    "2.16",
    "2.18",
    "2.19",
    "2.20",
    "2.21.5",
    "2.23",
    "2.26",
    "2.28",
)
VARIABLES: tuple[Mapping, ...] = (
    {"NCCL_ALGO": "^Tree"},
    {"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"},
    {"NCCL_PROTO": "^LL128"},
    {"NCCL_MIN_NCHANNELS": 4, "NCCL_MAX_NCHANNELS": 6},
    {"NCCL_MAX_NCHANNELS": 2},
    {"NCCL_MAX_CTAS": 8},
    {"NCCL_NCHANNELS_PER_NET_PEER": 1},
    {"NCCL_MAX_P2P_NCHANNELS": 4},
    {"NCCL_NVLS_ENABLE": 0},
    {"NCCL_NVLS_NCHANNELS": 8},
    {"NCCL_COLLNET_ENABLE": 1},
    {"NCCL_PAT_ENABLE": 0},
    {"NCCL_NTHREADS": 128},
    {"NCCL_BUFFSIZE": 1048576},
    {"NCCL_LL_BUFFSIZE": 65536},
    {"NCCL_P2P_DISABLE": 1},
    {"NCCL_SHM_DISABLE": 1, "NCCL_P2P_DISABLE": 1},
    {"NCCL_P2P_LEVEL": "PXB"},
    {"NCCL_NET_GDR_LEVEL": "LOC"},
    {"NCCL_NET_GDR_C2C": 0},
    {"NCCL_PXN_DISABLE": 1},
    {"NCCL_CROSS_NIC": 1},
    {"NCCL_IB_QPS_PER_CONNECTION": 4},
    {"NCCL_IB_HCA": "mlx5"},
    {"NCCL_IB_DISABLE": 1},
    {"NCCL_IB_TIMEOUT": 14},
    {"NCCL_P2P_NET_CHUNKSIZE": 65536},
    {"NCCL_P2P_LL_THRESHOLD": 0},
    {"NCCL_MNNVL_ENABLE": 0},
    {"NCCL_NO_SUCH": 1},
    {"NCCL_ALGO": "allreduce:Tree;broadcast:Ring"},
    {"NCCL_ALGO": "Tree,NVLS"},
    {"NCCL_PROTO": "LL128,Simple"},
    {"NCCL_LL128_NTHREADS": 160},
    {"NCCL_LL128_BUFFSIZE": 131072},
    {"NCCL_MIN_CTAS": 6},
    {"NCCL_MIN_P2P_NCHANNELS": 8},
    {"NCCL_IB_SPLIT_DATA_ON_QPS": 1, "NCCL_IB_QPS_PER_CONNECTION": 2},
    {"NCCL_IB_HCA": "^=mlx5_0"},
    {"NCCL_SOCKET_NTHREADS": 4},
    {"NCCL_NET_GDR_READ": 0},
    {"NCCL_P2P_NVL_CHUNKSIZE": 262144},
    {"NCCL_THREAD_THRESHOLDS": "8 8 64 8 8 8"},
    {"NCCL_TOPO_FILE": "none.xml"},
)
LAUNCHES: tuple[Any, ...] = (
    "single_process",
    "cuda_graph",
    {"style": "process_per_gpu", "host": "9us", "kernel": "4us"},
    {"style": "single_process", "host": "2us"},
)
NOISES: tuple[Any, ...] = (
    "quiet",
    "production",
    {"launch": {"exponential": {"mean": "3us"}}},
    {"link": {"normal": {"mean": "1%", "sigma": "2%"}, "common": "host"}},
    {"launch": {"lognormal": {"median": "2us", "sigma": 0.5}, "common": "host"}},
)


def drawn_collective(
    draw: Draw, *, textbook: bool, sizes: tuple[str, ...] = SIZES, ranks: int = 4
) -> Mapping:
    """Return the workload of a collective; `textbook` forces an algorithm that is not NCCL's.

    `ranks` is the number of ranks for collectives that name each of them (alltoallv).
    """
    known = tuple(TEXTBOOK_ALGORITHMS) if textbook else NCCL_COLLECTIVES
    name = draw.choose(known)
    work: Mapping = {"collective": name, "sizes": [draw.choose(sizes)]}
    if textbook:
        work["algorithm"] = draw.choose(TEXTBOOK_ALGORITHMS[name])
    elif name == "all_reduce":
        draw.maybe_set(work, 0.5, "algorithm", NCCL_ALGORITHMS)
    elif name in ("all_gather", "reduce_scatter"):
        draw.maybe_set(work, 0.3, "algorithm", ("Ring", "PAT", "NVLS"))
    has_protocol = name in WITH_PROTOCOL or draw.happens(0.1)  # others refuse one
    if not textbook and has_protocol:
        draw.maybe_set(work, 0.25, "protocol", ("LL", "LL128", "Simple"))
    if draw.happens(0.1):
        work["sizes"] = draw.sample(SMALL_SIZES, 3)
    draw.maybe_set(work, 0.25, "dtype", DTYPES)
    draw.maybe_set(work, 0.25, "timing", ("single",))
    if name in ROOTED:
        draw.maybe_set(work, 0.6, "root", (0, 1, 1, 3))
    if name == "p2p":
        work["pairs"] = draw.choose(([[0, 1]], [[0, 1], [1, 0], [0, 1]], [[1, 2], [0, 3]]))
    if name == "alltoallv" and draw.happens(0.6):
        work["matrix"] = _drawn_matrix(draw, ranks)
    draw.maybe_update(work, 0.1, PARTS)
    return work


def _drawn_matrix(draw: Draw, ranks: int) -> list[list[int]]:
    """Relative amounts that each rank sends to each other."""
    return [[draw.integer(0, MOST_VALUES_OF_MATRIX) for _ in range(ranks)] for _ in range(ranks)]


def add_conditions(draw: Draw, scenario: Mapping) -> None:
    """Add what a scenario may say beside cluster and workload: NCCL, launch, noise, limits."""
    nccl: Mapping = {}
    draw.maybe_set(nccl, 0.25, "version", NCCL_VERSIONS)
    draw.maybe_set(nccl, 0.3, "env", VARIABLES)
    draw.maybe_set(nccl, 0.07, "registration", ("local",))
    if nccl:
        scenario["nccl"] = nccl
    draw.maybe_set(scenario, 0.25, "launch", LAUNCHES)
    if draw.happens(0.1):
        scenario["noise"] = draw.choose(NOISES)
        scenario["samples"] = draw.choose((3, 10))
        scenario["seed"] = draw.integer(0, 5)
    draw.maybe_set(scenario, 0.15, "limits", (True,))
    draw.maybe_set(scenario, 0.1, "fold", ("off",))
    draw.maybe_set(scenario, 0.05, "exact", (True,))


# **** Training steps ****

DENSE_MODELS: tuple[Mapping, ...] = (
    {
        "layers": 4,
        "hidden": 512,
        "heads": 8,
        "kv_heads": 4,
        "ffn": 1024,
        "vocabulary": 1000,
        "sequence": 256,
    },
    {
        "layers": 4,
        "hidden": 256,
        "heads": 8,
        "ffn": 768,
        "vocabulary": 999,
        "gated": False,
        "biases": True,
        "tied": True,
        "positions": 128,
        "sequence": 128,
    },
)
EXPERT_MODELS: tuple[Mapping, ...] = (
    {
        "layers": 2,
        "hidden": 512,
        "heads": 8,
        "kv_heads": 8,
        "ffn": 1024,
        "vocabulary": 1000,
        "sequence": 256,
        "experts": 8,
        "top_k": 2,
        "expert_ffn": 256,
    },
    {
        "layers": 4,
        "hidden": 256,
        "heads": 8,
        "head_size": 64,
        "ffn": 512,
        "vocabulary": 500,
        "sequence": 64,
        "experts": 4,
        "top_k": 1,
        "shared_ffn": 128,
        "dense_layers": 1,
    },
)
LAYERS = [
    {"parameters": 1000000, "forward": "1ms", "backward": "2ms", "output": 4096, "repeat": 4},
    {"parameters": 300, "flops": 1e9, "activation": 1000},
]
DENSE_DEGREES: tuple[Mapping, ...] = (
    {"dp": 8},
    {"dp": 4, "tp": 2},
    {"tp": 2, "pp": 2, "dp": 2},
    {"pp": 4, "dp": 2},
    {"cp": 2, "dp": 4},
    {"tp": 8},
    {"cp": 2, "tp": 2, "pp": 2},
    {"pp": 2, "dp": 4},
)
EXPERT_DEGREES: tuple[Mapping, ...] = (
    {"ep": 4, "dp": 8},
    {"ep": 2, "dp": 4},
    {"ep": 2, "tp": 2, "dp": 2},
    {"ep": 2, "pp": 2, "dp": 4},
)
DATA_KINDS = (
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
REPLICAS: tuple[Mapping, ...] = (
    {"bucket": 262144, "first_bucket": 65536},
    {"bucket": 0},
    {"overlap": False},
    {"no_sync": True},
    {"no_sync": False},
    {"reshard": False},
    {"backward_prefetch": "post"},
    {"backward_prefetch": "none"},
    {"limit_all_gathers": False},
    {"overlap_gather": True},
    {"shard": 2},
    {"shard": 4},
    {"sync_every": 3, "islands": 2},
    {"sync_every": 2, "islands": 2, "overlap_sync": True},
    {"delayed": True},
    {"gradient_dtype": "float"},
    {"gather": "fp8"},
)
STEP_CHOICES: tuple[Mapping, ...] = (
    {"attention": "flash2"},
    {"attention": "unfused"},
    {"elementwise": "eager"},
    {"projections": "apart"},
    {"experts": "fused"},
    {"loss": "eager"},
    {"loss": "kernel"},
    {"imbalance": 1.5},
    {"optimizer": "sgd"},
    {"optimizer": "sgd-momentum"},
    {"optimizer": "adam-eager"},
    {"connections": 1},
    {"sequence": 96},
    {"compute": {"gemm_efficiency": "50%", "kernel": "3us"}},
    {"extras": [{"preset": "gradient-norm"}]},
    {"extras": [{"preset": "sync-batch-norm"}]},
    {"extras": [{"preset": "parameter-broadcast"}]},
    {"extras": [{"collective": "all_gather", "group": "dp", "bytes": 4096, "when": "backward"}]},
    {"scaling": "block"},
    {"scaling": "tensor"},
    {"stragglers": [{"rank": 3, "slowdown": 1.5}]},
    {"attention": "unpadded"},
    {"dtype": "fp8", "scaling": "row"},
    {"extras": [{"preset": "loss-reduce"}, {"preset": "input-scatter"}]},
    {"extras": [{"preset": "evaluation-gather"}]},
    {"compute": {"attention_efficiency": "40%", "memory_efficiency": "60%"}},
)
EIGHT_GPUS: tuple[Mapping, ...] = (
    {"machine": "dgx-h100"},
    {"machine": "dgx-a100", "nodes": 2, "gpus_per_node": 4},
    {
        "machine": "dgx-h100",
        "nodes": 4,
        "gpus_per_node": 2,
        "fabric": {"kind": "leaf-spine", "nodes_per_leaf": 1},
    },
    {"machine": "mi300x"},
)


def drawn_step(draw: Draw) -> Mapping:
    """Return a scenario of a training step of a small model on eight GPUs."""
    family = draw.choose(("dense", "dense", "dense", "experts", "experts", "layers"))
    models: dict[str, tuple[Any, ...]] = {
        "dense": DENSE_MODELS,
        "experts": EXPERT_MODELS,
        "layers": (LAYERS,),
    }
    degrees = {"dense": DENSE_DEGREES, "experts": EXPERT_DEGREES, "layers": DENSE_DEGREES[:1]}
    parallelism = dict(draw.choose(degrees[family]))
    draw.maybe_set(parallelism, 0.5, "data", DATA_KINDS)
    draw.maybe_set(parallelism, 0.3, "sequence_parallel", (True,))
    draw.maybe_set(parallelism, 0.2, "tensor_overlap", ("none", "pipelined"))
    draw.maybe_set(parallelism, 0.2, "context", ("all_gather", "a2a"))
    more: tuple[Mapping, ...] = (
        {"expert_tensor": False},
        {"expert_overlap": True},
        {"dispatcher": "deduplicated"},
        {"order": "dp-tp-cp-ep-pp"},
    )
    draw.maybe_update(parallelism, 0.2, more)
    work: Mapping = {
        "model": draw.choose(models[family]),
        "batch": draw.choose((8, 16, 16, 32)),
        "parallelism": parallelism,
        "allow_oom": True,
    }
    draw.maybe_set(work, 0.3, "micro_batch", (2,))
    draw.maybe_set(work, 0.3, "dtype", ("half", "float", "tf32", "fp8", "mxfp8", "nvfp4"))
    pipelines: tuple[Mapping, ...] = (
        {"schedule": "gpipe"},
        {"schedule": "zb-h1"},
        {"chunks": 2},
        {"schedule": "naive"},
        {"schedule": "1f1b", "blocking_sends": True},
        {"schedule": "interleaved", "chunks": 2},
        {"stages": [3, 1]},
    )
    draw.maybe_set(work, 0.3, "pipeline", pipelines)
    draw.maybe_set(work, 0.4, "replicas", REPLICAS)
    if draw.happens(0.2):
        work["compression"] = {"kind": draw.choose(("fp16", "bf16", "fp8", "top-k"))}
        draw.maybe_set(work["compression"], 0.3, "keep", ("1%", "10%"))
    recomputed = (
        "selective",
        "full",
        "non-reentrant",
        "ops",
        ["core_attn", "mlp"],
        ["layernorm", "moe_act"],
        ["moe", "shared_experts"],
        ["mla_up_proj"],
    )
    draw.maybe_set(work, 0.4, "recompute", recomputed)
    draw.maybe_update(work, 0.4, STEP_CHOICES)
    scenario: Mapping = {"cluster": dict(draw.choose(EIGHT_GPUS)), "workload": work}
    if draw.happens(0.15):
        scenario["noise"] = "quiet"
        scenario["samples"] = 3
    if draw.happens(0.15):
        scenario["cluster"]["faults"] = [{"gpu": "node0.gpu0", "slowdown": 1.3}]
    draw.maybe_set(scenario, 0.2, "launch", ("cuda_graph",))
    return scenario
