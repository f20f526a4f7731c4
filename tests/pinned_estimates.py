"""What is known of a call before anything of it is simulated: memory, rows, which rungs tell it and
why others do not; what mixed nodes agree on; the products of layers (see `tests.pins`)."""

from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from netsim.collectives.reduced import Sketch
from netsim.collectives.table import build, folds
from netsim.nccl.facts import parse_version
from netsim.nccl.job import _joined
from netsim.nccl.node import communicator, search_node
from netsim.scenario.cells import expand
from netsim.tasks.resolve import resolve
from netsim.timing import ladder
from netsim.timing.call import Call
from netsim.timing.fits import LIMITS, Limits, limits_of
from netsim.timing.ladder import SINGLE, Asked
from netsim.training.resolve import memories
from netsim.workloads.kernels import Shapes, cast_bytes, elementwise_of
from netsim.workloads.model import MODELS, Transformer, layers_of
from netsim.workloads.passes import PassTable
from netsim.yamlio.read import parse_source
from tests.collectives.collective_cases import TABLE, make
from tests.nccl.nccl_nodes import system_of
from tests.pinned_parts import tried
from tests.pins import Found, family
from tests.timing.cells import call_at
from tests.training.steps import H100, setting

CLUSTERS = {
    "one host": "{machine: dgx-h100}",
    "rails": "{machine: dgx-h100, nodes: 24, fabric: {kind: rail-optimized}}",
    "an odd NIC": "{machine: dgx-h100, nodes: 5, fabric: {kind: rail-optimized}, "
    "faults: [{nic: node1.nic1}]}",
    "hashed leaves": "{machine: hgx-h200, nodes: 40, fabric: {kind: leaf-spine, "
    "oversubscription: 2, transport: roce, routing: ecmp}}",
    "adaptive leaves": "{machine: dgx-a100, nodes: 36, fabric: {kind: leaf-spine, "
    "routing: adaptive}}",
    "dragonfly": "{machine: gh200-x4, nodes: 36, fabric: {kind: dragonfly}}",
    "four GPUs on two NICs": "{machine: a100-x4, nodes: 9, fabric: {kind: dragonfly}}",
    "racks": "{machine: gb200-nvl72, nodes: 2, fabric: {kind: rail-optimized}}",
    "a GPU a host": "{machine: dgx-h100, nodes: 70, gpus_per_node: 1, "
    "fabric: {kind: fat-tree, k: 12}}",
}
WORK = (
    "collective: all_reduce, algorithm: Ring",
    "collective: all_reduce, algorithm: Tree",
    "collective: all_reduce",
    "collective: all_gather",
    "collective: reduce_scatter",
    "collective: alltoall",
    "collective: broadcast",
    "collective: sendrecv",
    "collective: gather",
    "collective: all_reduce, algorithm: hierarchical",
    "collective: alltoall, algorithm: pairwise",
    "collective: all_gather, algorithm: ring",
)
SIZES = (1 << 10, 3 << 20, 1 << 28, 1 << 32)
SOME = {
    "": LIMITS,
    "exact": limits_of(exact=True),
    "in steps": limits_of(exact=False, step=True),
    "few rows": replace(
        LIMITS,
        rings=30_000,
        rows=500,
        most=300_000,
        repeated=10_000,
        restless=80_000,
        uneven=440_000,
        meeting=100_000,
        crowded=1e6,
        crowd=20_000,
        shown=40_000,
    ),
}


@family
def estimates() -> Found:
    """Rows and bytes of calls, and what every rung says of them."""
    for (name, cluster), work in product(CLUSTERS.items(), WORK):
        sizes = ", ".join(f"{size}B" for size in SIZES)
        told = f"cluster: {cluster}\nworkload: {{{work}, sizes: [{sizes}]}}\n"
        made = tried(lambda text=told: resolve(expand(parse_source(text, "x.yaml"))[0]))
        if isinstance(made, str):
            yield f"{name}, {work}", made
            continue
        calls = [call_at(made, size) for size in SIZES]
        for what, limits in SOME.items():
            yield f"{name}, {work}, {what}", [_known(call, limits) for call in calls]


def _known(call: Call, limits: Limits) -> list[object]:
    offers = [tried(rung, Asked(call, limits)) for rung in SINGLE]
    said = [
        (one.rows, one.ways, one.note) if isinstance(one, ladder.Offer) else str(one)
        for one in offers
    ]
    size = tried(ladder.size_of, call, limits) if not call.plans else None
    known = tried(ladder.bytes_expected, call, limits) if call.plans else size
    return [said, known, ladder.rows_in_full(call), tried(ladder.why_not, call, limits)]


@family
def agreed() -> Found:
    """What nodes of two kinds agree on."""
    names = ("dgxa100", "a100x4", "h100_8nic", "h100_4nic", "b200_8nic", "dgx2_8nic")
    version = parse_version("2.27.7")
    kinds = {
        name: communicator(search_node(system_of(name), networked=True), 2, version=version)
        for name in names
    }
    for one, other in product(kinds, kinds):
        found = tried(_joined, [kinds[one], kinds[other]], [4, 8])
        yield f"{one} and {other}", found


WAYS: tuple[dict[str, Any], ...] = (
    {}, {"tp": 2, "sequence_parallel": True, "apart": True}, {"cp": 2, "attention": "unfused"},
    {"tp": 4, "elementwise": "eager", "loss": "eager"},
    {"ep": 4, "tp": 2, "deduplicated": True, "imbalance": 1.25}, {"ep": 2, "fused_experts": True},
    {"dtype": "fp8", "scaling": "block"}, {"dtype": "fp8", "scaling": "tensor", "tp": 2},
)  # fmt: skip
RATES = replace(H100, flops=H100.flops | {"fp8": 1979e12})
AGAIN = (
    (),
    ("selective",),
    ("full",),
    ("non-reentrant",),
    ("layernorm", "mla_up_proj", "mlp"),
    ("ops", "moe_act"),
    ("shared_experts",),
    ("moe",),
)
OF_EXPERTS = ("_copies", "dispatched", "expert_split", "experts", "routed")


@family
def shapes() -> Found:
    """What a rank sees of every transformer."""
    for name, model in MODELS.items():
        for given in WAYS if isinstance(model, Transformer) else ():
            made = setting(model=model, **given)
            of = Shapes(model, made)
            told = {
                one: tried(getattr, of, one)
                for one in dir(Shapes)
                if isinstance(vars(Shapes).get(one), property | cached_property)
                and (model.experts or one not in OF_EXPERTS)
            }
            more = [tried(of.added, of.attention_in), of.mlp_in(model.ffn), of.mlp_out(model.ffn)]
            casts = [cast_bytes(made, fused=fused) for fused in (False, True)]
            kinds = [elementwise_of(made, gated=gated) for gated in (False, True)]
            yield f"{name} {given}", [told, more, of.width(2.5, 7, 11), casts, kinds]
            layers = {(layer.kind, layer.moe): layer for layer in layers_of(model)}
            passes = []
            for recompute in AGAIN:
                table = PassTable(replace(made, roofline=RATES, launch=4e-6, recompute=recompute))
                passes.append([tried(table.of, layer) for layer in layers.values()])
            held = tried(memories, replace(made, recompute=("selective",)))
            yield f"{name} {given}, passes", [passes, held]


@family
def sketches() -> Found:
    """What textbook algorithms tell of themselves before a row is written, and what is alike."""
    for name, algorithm in (one for one in TABLE if folds(*one)):
        yield (
            f"{name} {algorithm}",
            [
                tried(_sketched, name, algorithm, ranks, {"node_size": size} if size else {})
                for ranks, size in product((4, 6, 12, 16), (0, 2, 4))
            ],
        )


def _sketched(name: str, algorithm: str, ranks: int, given: dict[str, int]) -> list[object]:
    sketch, turn = Sketch(), np.arange(ranks) % 2
    build(make(name, ranks, 12 * ranks, root=ranks // 2), algorithm, fold=sketch, **given)
    known = [sketch.rows, sketch.refused, sketch.step_count, sketch.step_bytes]
    kinds = [sketch.skeleton(turn, steps=steps) for steps in (True, False)]
    return [*known, kinds, sketch.checks(turn), sketch.steps()]
