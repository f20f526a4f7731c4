"""Scenarios that relations are tried on, drawn from a seed: small, and of many kinds."""

from collections.abc import Callable
from typing import Any

from tests.relations.relation import Draw, Scenario

SIZES = ("8", "4KiB", "100000", "1MiB", "4MiB")
TEXTBOOK = {
    "all_reduce": ("ring", "double-binary-tree", "direct", "halving-doubling", "parameter-server"),
    "all_gather": ("ring", "bruck", "direct", "recursive-doubling"),
    "reduce_scatter": ("ring", "direct", "recursive-halving"),
    "broadcast": ("ring", "binomial", "scatter-allgather"),
    "reduce": ("ring", "binomial"),
    "gather": ("linear", "binomial"),
    "scatter": ("linear", "binomial"),
    "alltoall": ("pairwise", "linear-shift", "bruck"),
}
PIPELINED = (("all_reduce", "double-binary-tree"), ("broadcast", "ring"), ("reduce", "ring"))
NCCL = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "alltoall", "sendrecv")
RINGS = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
MODEL = {"layers": 4, "hidden": 256, "heads": 8, "ffn": 768, "vocabulary": 1000, "sequence": 128}


def switch(draw: Draw, ranks: tuple[int, ...] = (2, 4, 8)) -> Scenario:
    """A textbook algorithm on a switch with equal links."""
    collective = draw.choice(list(TEXTBOOK))
    graph = {
        "kind": "switch",
        "gpus": draw.choice(ranks),
        "bandwidth": draw.choice(("10GB/s", "50GB/s")),
        "latency": draw.choice(("500ns", "3us")),
    }
    work = {
        "collective": collective,
        "algorithm": draw.choice(TEXTBOOK[collective]),
        "sizes": [draw.choice(SIZES)],
        "timing": draw.choice(("single", "throughput")),
    }
    return {"cluster": {"graph": graph}, "workload": work}


def switch_and_chunk_count(draw: Draw) -> Scenario:
    """A textbook algorithm on a switch, whose pipeline has 8 chunks at every size.

    Chunks of a fixed size, the default of pipelined algorithms, are more at larger sizes.
    """
    scenario = switch(draw)
    work = scenario["workload"]
    work["sizes"] = ["1MiB"]  # a multiple of the ranks, so that rounding changes no chunk
    if (work["collective"], work["algorithm"]) in PIPELINED:
        work["parameters"] = {"chunks": 8}
    return scenario


def hosts(draw: Draw, nodes: tuple[int, ...] = (2, 3, 4)) -> Scenario:
    """NCCL on a few hosts of a machine with a few GPUs each."""
    cluster = {
        "machine": draw.choice(("dgx-h100", "dgx-a100", "hgx-h200")),
        "nodes": draw.choice(nodes),
        "gpus_per_node": draw.choice((1, 2, 4)),
        "fabric": {"kind": draw.choice(("rail-optimized", "leaf-spine", "single-switch"))},
    }
    work = {"collective": draw.choice(NCCL), "sizes": [draw.choice(SIZES)]}
    return {"cluster": cluster, "workload": work}


def one_host(draw: Draw) -> Scenario:
    """NCCL on one host."""
    machine = draw.choice(("dgx-h100", "dgx-a100", "dgx-b200", "a10-pcie-x4", "rtx4090-x8"))
    work = {"collective": draw.choice(NCCL), "sizes": [draw.choice(SIZES)]}
    return {"cluster": {"machine": machine}, "workload": work}


def any_cluster(draw: Draw) -> Scenario:
    """A collective on a switch, on a host, or on several hosts."""
    return draw.choice((switch, one_host, hosts))(draw)


def operations_back_to_back(draw: Draw) -> Scenario:
    """The same, with operations timed as is usual."""
    scenario = any_cluster(draw)
    scenario["workload"].pop("timing", None)
    return scenario


def simple_ring(draw: Draw, **cluster: Any) -> Scenario:
    """NCCL's Ring of the Simple protocol on several hosts: no choice of NCCL can change it."""
    scenario = hosts(draw)
    scenario["cluster"].update(cluster)
    collective = draw.choice(("all_reduce", "all_gather", "reduce_scatter"))
    scenario["workload"] = {
        "collective": collective,
        "algorithm": "Ring",
        "protocol": "Simple",
        "sizes": [draw.choice(("64KiB", "1MiB", "16MiB"))],
        "timing": "single",
    }
    return scenario


def rings_of_hosts(draw: Draw) -> Scenario:
    """A textbook ring over the fabric: all its traffic goes between neighbors."""
    scenario = hosts(draw)
    scenario["workload"] = {
        "collective": draw.choice(("all_reduce", "all_gather", "reduce_scatter")),
        "algorithm": "ring",
        "sizes": [draw.choice(("64KiB", "4MiB"))],
        "timing": "single",
    }
    return scenario


def of_collective(
    draw_scenario: Callable[[Draw], Scenario], collective: str, algorithm: str = "auto"
) -> Callable[[Draw], Scenario]:
    """Draw a scenario, then give it a collective and an algorithm."""

    def drawn(draw: Draw) -> Scenario:
        scenario = draw_scenario(draw)
        scenario["workload"].update(collective=collective, algorithm=algorithm)
        return scenario

    return drawn


def step(draw: Draw, **parallelism: int) -> Scenario:
    """A training step of a small model on eight GPUs, of one host or of two."""
    degrees = parallelism or draw.choice(({"dp": 8}, {"dp": 4, "tp": 2}, {"pp": 2, "dp": 4}))
    cluster: Scenario = {"machine": draw.choice(("dgx-h100", "dgx-a100"))}
    if draw.random() < 0.5:
        cluster.update(nodes=2, gpus_per_node=4)
    work: Scenario = {
        "model": dict(MODEL),
        "batch": draw.choice((16, 32)),
        "parallelism": dict(degrees),
    }
    return {"cluster": cluster, "workload": work}


def fault(draw: Draw) -> Scenario:
    """A fault of `faulty` clusters that loses nothing and leaves every way open."""
    part = draw.choice(
        (
            {"nic": "node0.nic0", "bandwidth": "50%"},
            {"link": "node1.nic1-leaf1", "bandwidth": "30%"},
            {"leaf": 1, "bandwidth": "50%"},
            {"gpu": "node1.gpu0", "slowdown": 2.0},
            {"rail": 0, "bandwidth": "80%"},
        )
    )
    moment = draw.choice(({}, {"at": "5us"}, {"at": "10us", "for": "50us"}))
    return {**part, **moment}


def faulty(draw: Draw, count: int = 2) -> Scenario:
    """A ring on two or three hosts with some faults."""
    cluster = {
        "machine": draw.choice(("dgx-h100", "hgx-h200")),
        "nodes": draw.choice((2, 3)),
        "gpus_per_node": 2,
        "fabric": {"kind": "rail-optimized"},
        "faults": [fault(draw) for _ in range(count)],
    }
    work = {
        "collective": draw.choice(("all_reduce", "all_gather")),
        "algorithm": draw.choice(("ring", "Ring")),
        "sizes": [draw.choice(("64KiB", "1MiB", "4MiB"))],
        "timing": "single",
    }
    return {"cluster": cluster, "workload": work}


def two_jobs(draw: Draw) -> Scenario:
    """Two jobs of two hosts each, each on a leaf of its own."""
    jobs = [
        {
            "name": name,
            "nodes": 2,
            "workload": {
                "collective": draw.choice(RINGS),
                "sizes": [draw.choice(("64KiB", "1MiB"))],
            },
        }
        for name in ("first", "second")
    ]
    cluster = {
        "machine": "dgx-h100",
        "nodes": 4,
        "gpus_per_node": draw.choice((1, 2)),
        "fabric": {"kind": "leaf-spine", "nodes_per_leaf": 2, "oversubscription": 2},
    }
    return {"cluster": cluster, "jobs": jobs}


def two_sites(draw: Draw) -> Scenario:
    """A collective between two sites."""
    cluster = {
        "machine": "dgx-h100",
        "nodes": 4,
        "gpus_per_node": 1,
        "nics_per_node": 1,
        "fabric": {"kind": "leaf-spine"},
        "sites": {"count": 2, "distance": draw.choice(("1km", "50km")), "bandwidth": "100Gbps"},
    }
    work = {
        "collective": draw.choice(("all_reduce", "all_gather", "sendrecv")),
        "sizes": [draw.choice(("64KiB", "1MiB"))],
        "timing": "single",
    }
    if work["collective"] != "sendrecv":
        work["algorithm"] = "ring"
    return {"cluster": cluster, "workload": work}


def noisy(draw: Draw) -> Scenario:
    """A collective with noise of launches."""
    scenario = hosts(draw, nodes=(2,))
    scenario["noise"] = {"launch": {"exponential": {"mean": "3us"}}}
    scenario["samples"] = 8
    scenario["seed"] = draw.randrange(100)
    scenario["workload"]["sizes"] = ["64KiB"]
    return scenario
