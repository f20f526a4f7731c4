"""Relations that must hold between answers, one entry each, over every feature.

Not repeated here: those of faults in `tests/topology/test_fault_relations.py` (spellings, order,
further and longer faults), ids of cells in `tests/scenario/test_cell_ids.py`, and both engines and
the fluid oracle on drawn faults in `tests/engines/drawn_scenarios.py`.
"""

from tests.relations import answers, draws, imports
from tests.relations.relation import (
    AT_MOST,
    EQUAL,
    Relation,
    after,
    nothing,
    over,
    rising,
    rows,
    scaled,
    setting,
    times,
    within,
    without,
)

SMALL_TO_LARGE = ("4KiB", "64KiB", "1MiB", "16MiB")

COLLECTIVES = [
    Relation(
        "the rank order of a symmetric switch does not matter",
        draws.switch,
        times,
        after(answers.with_shuffled_ranks),
        EQUAL,
    ),
    Relation(
        "latency times 3 and bandwidth by 3 make a textbook algorithm take 3 times as long",
        draws.switch,
        scaled(3, times),
        after(answers.slower_graph(3, 3)),
        EQUAL,
    ),
    Relation(
        "size times 4 and latency times 4 make a textbook algorithm take 4 times as long",
        draws.switch_and_chunk_count,
        scaled(4, times),
        after(setting({"workload.sizes": ["4MiB"]}), answers.slower_graph(4, 1)),
        EQUAL,
    ),
    Relation(
        "more bytes take no less time with a textbook algorithm",
        draws.switch,
        over("workload.sizes", [[size] for size in SMALL_TO_LARGE]),
        nothing,
        rising,
    ),
    Relation(
        "more bytes take no less time with NCCL's ring of the Simple protocol",
        draws.simple_ring,
        over("workload.sizes", [["1MiB"], ["4MiB"], ["16MiB"], ["64MiB"]]),
        nothing,
        rising,
    ),
    Relation(
        "faster links take no more time with a textbook algorithm",
        draws.switch,
        over("cluster.graph.bandwidth", ["50GB/s", "20GB/s", "5GB/s"]),
        nothing,
        rising,
    ),
    Relation(
        "faster NICs take no more time with a textbook ring",
        draws.rings_of_hosts,
        over("cluster.nic", ["400Gbps", "200Gbps", "100Gbps", "25Gbps"]),
        nothing,
        rising,
    ),
    Relation(
        "a longer wire takes no less time",
        draws.switch,
        over("cluster.graph.latency", ["100ns", "1us", "20us"]),
        nothing,
        rising,
    ),
    Relation(
        "an all_reduce takes no less than a reduce_scatter of the same data",
        # A reduce_scatter's size is its output of all ranks together, as nccl-tests counts it.
        draws.of_collective(draws.switch, "all_reduce", "ring"),
        after(setting({"workload.collective": "reduce_scatter"})),
        times,
        AT_MOST,
    ),
    Relation(
        "a ring all_reduce is a reduce_scatter and an all_gather on a switch",
        answers.drawn(
            draws.switch,
            {
                "workload.collective": "all_reduce",
                "workload.algorithm": "ring",
                "workload.timing": "single",
                "workload.sizes": ["1MiB"],
            },
        ),
        times,
        answers.sum_over("workload.collective", ["reduce_scatter", "all_gather"]),
        EQUAL,
    ),
    Relation(
        "every root of a broadcast on a symmetric switch takes as long",
        draws.of_collective(draws.switch, "broadcast", "binomial"),
        after(setting({"workload.root": 0})),
        after(setting({"workload.root": 1})),
        EQUAL,
    ),
    Relation(
        "every root of NCCL's broadcast on one NVSwitch host takes as long",
        answers.drawn(
            draws.one_host,
            {"workload.collective": "broadcast", "cluster.machine": "dgx-h100"},
        ),
        after(setting({"workload.root": 0})),
        after(setting({"workload.root": 3})),
        EQUAL,
    ),
    Relation(
        "a broadcast and a reduce with the same tree take as long on a switch",
        # Back to back, roots of broadcasts run ahead and roots of reduces wait.
        answers.drawn(
            draws.of_collective(draws.switch, "broadcast", "binomial"),
            {"workload.timing": "single"},
        ),
        times,
        after(setting({"workload.collective": "reduce"})),
        EQUAL,
    ),
    Relation(
        "an all_gather and a reduce_scatter with the same ring take as long on a switch",
        draws.of_collective(draws.switch, "all_gather", "ring"),
        times,
        after(setting({"workload.collective": "reduce_scatter"})),
        EQUAL,
    ),
    Relation(
        "ranks that are all GPUs in order are the default",
        draws.switch,
        times,
        after(answers.with_every_rank_named),
        EQUAL,
    ),
    Relation(
        "elements of another size with as many bytes take as long to move",
        draws.of_collective(draws.switch, "all_gather", "ring"),
        times,
        after(setting({"workload.dtype": "half"})),
        EQUAL,
    ),
    Relation(
        "the algorithm and protocol that NCCL chooses take as long when they are forced",
        answers.drawn(draws.any_cluster, {"workload.collective": "all_reduce"}, nccl=True),
        times,
        answers.forced_choice,
        EQUAL,
    ),
    Relation(
        "several sizes in one cell take what each takes alone",
        draws.any_cluster,
        after(setting({"workload.sizes": ["4KiB", "1MiB"]})),
        over("workload.sizes", [["4KiB"], ["1MiB"]]),
        EQUAL,
    ),
    Relation(
        "folding of equal ranks changes no time",
        draws.any_cluster,
        times,
        after(setting({"fold": "off"})),
        EQUAL,
    ),
    Relation(
        "no operation beats the limit that no algorithm beats",
        answers.drawn(draws.any_cluster, {"limits": True}),
        answers.column("limit_us"),
        times,
        AT_MOST,
    ),
    Relation(
        "an environment variable that names the default changes nothing",
        draws.hosts,
        times,
        after(setting({"nccl.env": {"NCCL_BUFFSIZE": 4194304}})),
        EQUAL,
    ),
    Relation(
        "NCCL_ALGO and a workload's algorithm are one thing",
        answers.drawn(draws.hosts, {"workload.collective": "all_reduce"}),
        after(setting({"workload.algorithm": "Ring"})),
        after(setting({"nccl.env": {"NCCL_ALGO": "Ring"}})),
        EQUAL,
    ),
    Relation(
        "NCCL_PROTO and a workload's protocol are one thing",
        answers.drawn(draws.hosts, {"workload.collective": "all_gather"}),
        after(setting({"workload.algorithm": "Ring", "workload.protocol": "LL"})),
        after(setting({"nccl.env": {"NCCL_PROTO": "LL", "NCCL_ALGO": "Ring"}})),
        EQUAL,
    ),
    Relation(
        "time, size and bus bandwidth of a row say the same",
        answers.drawn(draws.any_cluster, {"workload.collective": "all_reduce"}, nccl=True),
        answers.bus_bandwidth_from_time,
        answers.column("busbw_GBps"),
        EQUAL,
    ),
]

# Wide enough for products, not the gaps between kernels, to take the time.
WIDE = {"layers": 2, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocabulary": 32000}

STEPS = [
    Relation(
        "the parts of a step's breakdown sum to the step",
        draws.step,
        answers.sum_of_breakdown,
        times,
        EQUAL,
    ),
    Relation(
        "one replica has no gradient communication",
        lambda draw: draws.step(draw, tp=8, dp=1),
        answers.detail("exposed_dp_us"),
        lambda _: [0.0],
        EQUAL,
    ),
    Relation(
        "a pipeline of one stage has no pipeline communication",
        lambda draw: draws.step(draw, tp=2, dp=4),
        answers.detail("exposed_pp_us"),
        lambda _: [0.0],
        EQUAL,
    ),
    Relation(
        "degrees of one are the degrees that are left out",
        lambda draw: draws.step(draw, dp=4, tp=2),
        times,
        after(setting({"workload.parallelism.pp": 1, "workload.parallelism.cp": 1})),
        EQUAL,
    ),
    Relation(
        "a step on slower NICs is no faster",
        answers.drawn(draws.step, {"cluster.nodes": 2, "cluster.gpus_per_node": 4}),
        over("cluster.nic", ["400Gbps", "100Gbps", "25Gbps"]),
        nothing,
        rising,
    ),
    Relation(
        "a larger batch takes no less time",
        draws.step,
        over("workload.batch", [16, 32, 64]),
        nothing,
        rising,
    ),
    Relation(
        "a slow GPU makes no step faster",
        draws.step,
        times,
        after(setting({"cluster.faults": [{"gpu": "node0.gpu0", "slowdown": 1.5}]})),
        AT_MOST,
    ),
    Relation(
        "a straggler is a fault of its GPU",
        lambda draw: draws.step(draw, dp=8),
        after(setting({"workload.stragglers": [{"rank": 0, "slowdown": 1.5}]})),
        after(setting({"cluster.faults": [{"gpu": "node0.gpu0", "slowdown": 1.5}]})),
        EQUAL,
    ),
    Relation(
        "a step that trains adapters beside frozen weights is no longer than one that trains all",
        answers.drawn(draws.step, {"workload.model": WIDE, "workload.sequence": 2048}),
        after(setting({"workload.lora": {"rank": 16}})),
        times,
        AT_MOST,
    ),
    Relation(
        "adapters of a higher rank take no less time",
        answers.drawn(draws.step, {"workload.model": WIDE, "workload.sequence": 2048}),
        over("workload.lora", [{"rank": rank} for rank in (8, 64, 512)]),
        nothing,
        rising,
    ),
    Relation(
        "a longer sequence of a hybrid model takes no less time",
        answers.drawn(
            draws.step, {"workload.model": "nemotron-3-nano", "workload.allow_oom": True}
        ),
        over("workload.sequence", [1024, 4096]),
        nothing,
        rising,
    ),
    Relation(
        "tokens in a second times the step are the tokens of a batch",
        draws.step,
        answers.tokens_of_step,
        answers.tokens_of_batch,
        EQUAL,
    ),
    Relation(
        "a step's computing does not depend on the network where nothing overlaps",
        # Collectives beside kernels hold SMs, so that with overlap a slow network slows kernels.
        answers.drawn(
            lambda draw: draws.step(draw, dp=8),
            {
                "cluster.nodes": 2,
                "cluster.gpus_per_node": 4,
                "workload.replicas": {"overlap": False},
            },
        ),
        answers.detail("computing_us"),
        answers.detail("computing_us", setting({"cluster.nic": "50Gbps"})),
        EQUAL,
    ),
]

FABRICS = [
    Relation(
        "a leaf-spine that is non-blocking and sprays is a single switch plus two hops",
        # Two more hops of latency on each transfer: at most 2 us a step of 2 (n - 1) steps each.
        answers.drawn(draws.rings_of_hosts, {"cluster.fabric": {"kind": "single-switch"}}),
        times,
        after(setting({"cluster.fabric": answers.SPRAYED_LEAVES})),
        answers.later_by(0.0, 40.0),
    ),
    Relation(
        "rail-optimized and single switch are alike for rings that stay on their rails",
        answers.drawn(draws.rings_of_hosts, {"cluster.gpus_per_node": 1}),
        after(setting({"cluster.fabric": {"kind": "rail-optimized"}})),
        after(setting({"cluster.fabric": {"kind": "single-switch"}})),
        EQUAL,
    ),
    Relation(
        "more oversubscription takes no less time",
        draws.rings_of_hosts,
        over("cluster.fabric", answers.OVERSUBSCRIBED),
        nothing,
        rising,
    ),
    Relation(
        "hosts of a fabric that the job does not have change nothing on one switch",
        answers.drawn(draws.simple_ring, {"cluster.fabric": {"kind": "single-switch"}}),
        times,
        after(setting({"cluster.fabric.nodes": 16})),
        EQUAL,
    ),
    Relation(
        "hosts of one switch that are placed elsewhere take as long",
        answers.drawn(
            draws.simple_ring, {"cluster.fabric": {"kind": "single-switch", "nodes": 16}}
        ),
        times,
        after(setting({"cluster.placement": "spread"})),
        EQUAL,
    ),
    Relation(
        "a switch spelled by hand is the preset graph",
        draws.switch,
        times,
        after(answers.switch_by_hand),
        EQUAL,
    ),
    Relation(
        "a ring of links spelled by hand is the preset graph",
        answers.drawn(draws.switch, {"cluster.graph.kind": "ring"}),
        times,
        after(answers.ring_by_hand),
        EQUAL,
    ),
    Relation(
        "a single switch spelled by hand is the preset fabric",
        answers.drawn(draws.rings_of_hosts, {"cluster.fabric": {"kind": "single-switch"}}),
        times,
        after(setting({"cluster.fabric": answers.SWITCH_BY_HAND})),
        EQUAL,
    ),
    Relation(
        "a machine that is the default of two hosts has a rail-optimized fabric",
        draws.hosts,
        after(without("cluster.fabric")),
        after(setting({"cluster.fabric": {"kind": "rail-optimized"}})),
        EQUAL,
    ),
    Relation(
        "one group of equal hosts is a cluster of that machine",
        draws.simple_ring,
        times,
        after(answers.as_one_group),
        EQUAL,
    ),
    Relation(
        "two groups of the same machine are one cluster of it",
        answers.drawn(draws.simple_ring, {"cluster.nodes": 4}),
        times,
        after(answers.as_two_groups),
        EQUAL,
    ),
    Relation(
        "the first GPUs by number are the GPUs by count",
        answers.drawn(draws.hosts, {"cluster.gpus_per_node": 2}),
        times,
        after(without("cluster.gpus_per_node"), setting({"cluster.gpus": [0, 1]})),
        EQUAL,
    ),
    Relation(
        "an override that names the machine's own rate changes nothing",
        answers.drawn(draws.simple_ring, {"cluster.machine": "dgx-h100"}),
        times,
        after(setting({"cluster.overrides": [{"link": "node0.nic0-*", "bandwidth": "400Gbps"}]})),
        EQUAL,
    ),
    Relation(
        "a cluster that is exported cable by cable takes as long",
        draws.rings_of_hosts,
        times,
        answers.exported_fabric,
        EQUAL,
    ),
    Relation(
        "a graph that is exported as node-link JSON takes as long when it is read",
        draws.switch,
        times,
        answers.exported_graph,
        EQUAL,
    ),
]

FAULTS = [
    Relation(
        "the order of two drawn faults does not matter",
        draws.faulty,
        times,
        after(setting({"cluster.faults": lambda faults: faults[::-1]})),
        EQUAL,
        draws=6,
    ),
    Relation(
        "the first of two faults alone takes no more time than both",
        draws.faulty,
        after(setting({"cluster.faults": lambda faults: faults[:1]})),
        times,
        AT_MOST,
        draws=6,
    ),
    Relation(
        "a fault that leaves everything is none",
        draws.faulty,
        after(setting({"cluster.faults": [{"nic": "node0.nic0", "bandwidth": "100%"}]})),
        after(without("cluster.faults")),
        EQUAL,
    ),
    Relation(
        "a slowdown by one is none",
        draws.faulty,
        after(setting({"cluster.faults": [{"gpu": "node1.gpu1", "slowdown": 1.0}]})),
        after(without("cluster.faults")),
        EQUAL,
    ),
    Relation(
        "a fault of a NIC that no GPU of the job uses changes nothing for a textbook ring",
        answers.drawn(draws.faulty, {"workload.algorithm": "ring", "cluster.faults": []}),
        times,
        after(setting({"cluster.faults": [{"nic": "node0.nic7", "bandwidth": "10%"}]})),
        EQUAL,
    ),
    Relation(
        "a fault that begins after the end changes nothing",
        draws.faulty,
        after(setting({"cluster.faults": [{"nic": "node0.nic0", "at": "1s", "loss": False}]})),
        after(without("cluster.faults")),
        EQUAL,
    ),
    Relation(
        "two halves of a rate are a quarter of it",
        draws.faulty,
        after(setting({"cluster.faults": [{"nic": "node0.nic0", "bandwidth": "50%"}] * 2})),
        after(setting({"cluster.faults": [{"nic": "node0.nic0", "bandwidth": "25%"}]})),
        EQUAL,
    ),
    Relation(
        "a slower cable takes no less time",
        draws.faulty,
        answers.over_left_of_nic(["100%", "50%", "10%", "1%"]),
        nothing,
        rising,
    ),
    Relation(
        "a fault of a latency as it was is none",
        draws.faulty,
        after(setting({"cluster.faults": [{"link": "node0.nic0-leaf0", "latency": "50us"}]})),
        after(without("cluster.faults")),
        lambda slow, usual: AT_MOST(usual, slow),
    ),
]

JOBS = [
    Relation(
        "jobs that share no link do not disturb one another",
        draws.two_jobs,
        times,
        answers.column("alone_us"),
        EQUAL,
    ),
    Relation(
        "the order of jobs with hosts of their own does not matter",
        answers.drawn(draws.two_jobs, {"jobs.0.placement": [0, 2], "jobs.1.placement": [1, 3]}),
        times,
        lambda scenario: after(setting({"jobs": lambda jobs: jobs[::-1]}))(scenario)[::-1],
        EQUAL,
    ),
    Relation(
        "a job alone in the list takes what the workload takes back to back",
        # The job runs 20 operations in full, the workload is extrapolated where it may be.
        answers.drawn(draws.two_jobs, {"jobs.0.repeat": 20}),
        after(answers.first_job_alone),
        after(answers.first_job_as_workload),
        within(0.02),
    ),
    Relation(
        "a neighbor on the same links makes no job faster",
        answers.drawn(draws.two_jobs, {"jobs.0.placement": [0, 2], "jobs.1.placement": [1, 3]}),
        answers.column("alone_us"),
        times,
        AT_MOST,
    ),
    Relation(
        "a job's slowdown is its time over its time alone",
        answers.drawn(draws.two_jobs, {"jobs.0.placement": [0, 2], "jobs.1.placement": [1, 3]}),
        answers.column("slowdown"),
        answers.slowdown_from_times,
        EQUAL,
    ),
    Relation(
        "both jobs that begin later take as long",
        answers.drawn(draws.two_jobs, {"jobs.0.placement": [0, 2], "jobs.1.placement": [1, 3]}),
        times,
        after(setting({"jobs.0.start": "100us", "jobs.1.start": "100us"})),
        within(1e-6),  # of differences of times that have 100 us added
    ),
]

SITES = [
    Relation(
        "a distance is a latency of 4.9 us a km",
        answers.drawn(draws.two_sites, {"cluster.sites.distance": "50km"}),
        times,
        after(without("cluster.sites.distance"), setting({"cluster.sites.latency": "245us"})),
        EQUAL,
    ),
    Relation(
        "sites farther apart take no less time",
        draws.two_sites,
        over("cluster.sites.distance", ["1km", "10km", "100km"]),
        nothing,
        rising,
    ),
    Relation(
        "a faster line between sites takes no more time",
        draws.two_sites,
        over("cluster.sites.bandwidth", ["400Gbps", "100Gbps", "10Gbps"]),
        nothing,
        rising,
    ),
    Relation(
        "sites of equal numbers of hosts may be listed",
        draws.two_sites,
        times,
        after(without("cluster.sites.count"), setting({"cluster.sites.nodes": [2, 2]})),
        EQUAL,
    ),
]

NOISE = [
    Relation(
        "noise of nothing changes no percentile",
        answers.drawn(draws.noisy, {"noise": {"launch": {"exponential": {"mean": "0s"}}}}),
        answers.column("p50_us"),
        answers.column("p99_us"),
        EQUAL,
    ),
    Relation(
        "noise does not change the time without noise",
        draws.noisy,
        times,
        after(without("noise", "samples")),
        EQUAL,
    ),
    Relation(
        "the same seed gives the same percentiles",
        draws.noisy,
        answers.column("p95_us"),
        answers.column("p95_us"),
        lambda left, right: "" if left == right else f"{left} is not {right}",
    ),
    Relation(
        "percentiles rise",
        draws.noisy,
        lambda scenario: [
            value for row in rows(scenario) for value in (row.p5_us, row.p50_us, row.p95_us)
        ],
        nothing,
        rising,
    ),
    Relation(
        "the same delay of all launches is added to every sample",
        # A rank that begins late by 7 us in all samples: no percentile differs from the median.
        answers.drawn(draws.noisy, {"noise.launch": {"normal": {"mean": "7us", "sigma": "0s"}}}),
        answers.column("p50_us"),
        answers.median_plus(7.0),
        EQUAL,
    ),
    Relation(
        "the median of many samples of a common delay is the median of its distribution",
        # Exponential of 10 us, one draw a host, on one host: its median is 6.93 us. With 400
        # samples the median's standard error is 10 / sqrt(400) = 0.5 us; 3 of them are allowed.
        answers.drawn(
            draws.noisy,
            {
                "cluster": {"machine": "dgx-h100", "gpus_per_node": 4},
                "noise": {"launch": {"exponential": {"mean": "10us"}, "common": "host"}},
                "samples": 400,
            },
        ),
        answers.column("p50_us"),
        answers.median_plus(6.93),
        answers.apart_by_at_most(1.5),
    ),
]

SWEEPS = [
    Relation(
        "a cell of a sweep is the same scenario alone",
        draws.hosts,
        after(setting({"sweep": {"cluster.nodes": [1, 2, 3]}})),
        over("cluster.nodes", [1, 2, 3]),
        EQUAL,
    ),
    Relation(
        "the order of a sweep's axes does not change what cells answer",
        draws.hosts,
        answers.sorted_times(setting({"sweep": answers.TWO_AXES})),
        answers.sorted_times(setting({"sweep": dict(reversed(answers.TWO_AXES.items()))})),
        EQUAL,
    ),
    Relation(
        "a part of a sweep has the same rows",
        draws.hosts,
        after(setting({"sweep": {"workload.dtype": ["half"]}})),
        lambda scenario: after(setting({"sweep": {"workload.dtype": ["half", "float"]}}))(scenario)[
            :1
        ],
        EQUAL,
    ),
    Relation(
        "a zip of two axes is its cells",
        draws.hosts,
        after(
            setting(
                {"sweep": {"zip": [{"cluster.nodes": [1, 3], "cluster.gpus_per_node": [4, 1]}]}}
            )
        ),
        lambda scenario: [
            *after(setting({"cluster.nodes": 1, "cluster.gpus_per_node": 4}))(scenario),
            *after(setting({"cluster.nodes": 3, "cluster.gpus_per_node": 1}))(scenario),
        ],
        EQUAL,
    ),
]

EXPLANATIONS = [
    Relation(
        "the causes of an explanation sum to its time",
        draws.any_cluster,
        answers.sum_of_causes,
        answers.explained_time,
        EQUAL,
    ),
    Relation(
        "an explanation is of the time from standstill",
        answers.drawn(draws.any_cluster, {"workload.timing": "single"}),
        answers.explained_time,
        answers.time_without_fold,
        EQUAL,
    ),
    Relation(
        "what an explanation says of links 10 % faster is what a run with them takes",
        answers.drawn(draws.switch, {"workload.timing": "single"}, moves=True),
        answers.explained_with_faster_links,
        answers.graph_with_faster_links,
        EQUAL,
    ),
    Relation(
        "no free part of an operation makes it slower in a ring on a switch",
        draws.of_collective(draws.switch, "all_gather", "ring"),
        answers.explained_without_parts,
        answers.explained_time_for_each_part,
        AT_MOST,
    ),
    Relation(
        "a what-if of factor 1 changes nothing",
        draws.any_cluster,
        imports.time_with_each_parameter_times_one,
        imports.time_for_each_parameter,
        EQUAL,
        draws=2,
    ),
]

CALIBRATION = [
    Relation(
        "a noise-free log that netsim makes calibrates to the usual figures",
        answers.drawn_log,
        answers.calibrated_ratios,
        lambda _: [1.0],
        within(0.01),  # a log prints four digits, and fits stop there
        draws=1,
    ),
    Relation(
        "a prediction compared with itself as a log has no error beyond its four digits",
        answers.drawn_log,
        answers.compared_with_itself,
        answers.ones,
        within(1e-3),
        draws=2,
    ),
]

SPELLINGS = [
    Relation(
        "a size is the same in bytes, KiB and MiB",
        draws.any_cluster,
        after(setting({"workload.sizes": ["1MiB"]})),
        after(setting({"workload.sizes": ["1024KiB"]})),
        EQUAL,
    ),
    Relation(
        "a size is the same as a number",
        draws.any_cluster,
        after(setting({"workload.sizes": ["2MiB"]})),
        after(setting({"workload.sizes": [2097152]})),
        EQUAL,
    ),
    Relation(
        "a rate is the same in Gbps, GB/s and Tbps",
        draws.switch,
        over("cluster.graph.bandwidth", ["400Gbps", "400Gbps"]),
        over("cluster.graph.bandwidth", ["50GB/s", "0.4Tbps"]),
        EQUAL,
    ),
    Relation(
        "a latency is the same in ns and us",
        draws.switch,
        over("cluster.graph.latency", ["1500ns"]),
        over("cluster.graph.latency", ["1.5us"]),
        EQUAL,
    ),
    Relation(
        "a range of sizes is the list of them",
        draws.any_cluster,
        after(setting({"workload.sizes": {"from": "64KiB", "to": "1MiB", "factor": 4}})),
        after(setting({"workload.sizes": ["64KiB", "256KiB", "1MiB"]})),
        EQUAL,
    ),
    Relation(
        "types by either name are one type",
        draws.any_cluster,
        after(setting({"workload.dtype": "bfloat16"})),
        after(setting({"workload.dtype": "bf16"})),
        EQUAL,
    ),
    Relation(
        "a launch by name is the launch by style",
        draws.hosts,
        after(setting({"launch": "single_process"})),
        after(setting({"launch": {"style": "single_process"}})),
        EQUAL,
    ),
    Relation(
        "a cost of launches of nothing is none",
        answers.drawn(draws.switch, {"workload.timing": "single"}),
        times,
        after(setting({"launch": {"host": "0s", "kernel": "0s"}})),
        EQUAL,
    ),
    Relation(
        "`expect` prints what `run` answers",
        answers.drawn_for_expect,
        answers.expected_times,
        times,
        within(1e-4),  # four digits after the point or more
    ),
    Relation(
        "`--set` of a key is the key in the file",
        draws.any_cluster,
        answers.with_settings("workload.sizes=64KiB"),
        after(setting({"workload.sizes": ["64KiB"]})),
        EQUAL,
    ),
]

IMPORTS = [
    Relation(
        "a machine that is exported as NCCL's topology XML takes as long when it is read",
        draws.one_host,
        times,
        imports.read_as_nccl_topology,
        EQUAL,
    ),
    Relation(
        "hosts of a machine that is exported as NCCL's topology XML take as long when it is read",
        draws.hosts,
        times,
        imports.read_as_nccl_topology,
        EQUAL,
    ),
    Relation(
        "channels that are written as NCCL's graph XML take as long as those of the search",
        draws.hosts,
        times,
        imports.with_graphs_of_the_search,
        EQUAL,
    ),
    Relation(
        "the tuner's table that `expect` writes makes no operation slower",
        imports.drawn_for_tuner,
        imports.with_tuner_of_expect,
        times,
        AT_MOST,
    ),
    Relation(
        "a graph that is exported as InfraGraph takes as long when it is read",
        draws.switch,
        times,
        imports.read_as_infragraph,
        EQUAL,
        package="infragraph",
    ),
    Relation(
        "ASTRA-sim's network of one switch is the preset switch",
        draws.switch,
        times,
        imports.read_as_astra_network,
        EQUAL,
    ),
    Relation(
        "an algorithm that is written as MSCCL's XML takes as long when it is read",
        imports.drawn_schedule,
        times,
        imports.read_as("msccl", "**/algorithm.xml"),
        EQUAL,
    ),
    Relation(
        "an algorithm that is written as a plan of MSCCL++ takes no less time when it is read",
        # A block of a plan does one thing after the other, which adds some latencies.
        imports.drawn_schedule,
        times,
        imports.read_as("mscclpp", "**/plan.json"),
        AT_MOST,
    ),
    Relation(
        "an operation that is written as GOAL takes as long when it is replayed",
        imports.drawn_schedule,
        times,
        imports.replayed_as("goal", "**/*.goal"),
        EQUAL,
    ),
    Relation(
        "a step that is written as Chakra traces takes as long when they are read",
        # Chakra has durations in whole microseconds, and no launches of the host.
        answers.drawn(draws.step, {"launch": "cuda_graph"}),
        times,
        imports.replayed_as("chakra", "chakra/*.0.et", "launch"),
        within(5e-3),
    ),
    Relation(
        "a step that is written as a trace of PyTorch's profiler takes as long when it is read",
        # All ranks do the same, as one rank's trace stands for all.
        lambda draw: draws.step(draw, dp=8),
        times,
        imports.replayed_as("trace", "trace.json*"),
        within(1e-6),
    ),
    Relation(
        "the table of nccl-tests that `expect` prints has the times of the rows",
        imports.drawn_table,
        times,
        imports.read_from_printed_log,
        within(1e-3),  # two digits after the point
    ),
    Relation(
        "the JSON of nccl-tests that `expect` writes has the times of the rows",
        imports.drawn_table,
        times,
        imports.read_from_json_log,
        within(1e-3),
    ),
]

ENGINES = [
    Relation(
        "both engines take as long",
        draws.switch,
        lambda scenario: times(scenario, engine="simpy"),
        lambda scenario: times(scenario, engine="compiled"),
        EQUAL,
        draws=5,
    ),
    Relation(
        "both engines take as long with faults",
        draws.faulty,
        lambda scenario: times(scenario, engine="simpy"),
        lambda scenario: times(scenario, engine="compiled"),
        EQUAL,
        draws=2,
    ),
    Relation(
        "an approximated time is within its stated error of the exact one",
        answers.drawn_to_approximate,
        answers.distance_from_exact,
        answers.stated_error,
        AT_MOST,
        draws=4,
    ),
]

OPERATIONS = [
    Relation(
        "twenty operations are what is usual, in both spellings",
        answers.drawn(
            draws.operations_back_to_back,
            {"timing": {"iterations": 20, "over_processes": "mean"}},
        ),
        times,
        after(without("timing"), setting({"workload.timing": "throughput"})),
        EQUAL,
    ),
    Relation(
        "the mean over processes is no more than the greatest",
        draws.operations_back_to_back,
        times,
        after(setting({"timing": {"over_processes": "max"}})),
        AT_MOST,
    ),
    Relation(
        "the least over processes is no more than the mean",
        draws.operations_back_to_back,
        after(setting({"timing": {"over_processes": "min"}})),
        times,
        AT_MOST,
    ),
    Relation(
        "one operation back to back is one operation, by the process that ends last",
        draws.operations_back_to_back,
        after(setting({"timing": {"iterations": 1, "over_processes": "max"}})),
        after(setting({"timing": "single"})),
        EQUAL,
    ),
    Relation(
        "two processes of equal GPUs that end together find what one process finds",
        answers.drawn(
            draws.of_collective(draws.switch, "all_gather", "ring"),
            {"launch": {"style": "process_per_gpu", "host": "0s"}},
        ),
        times,
        after(setting({"launch": {"style": "single_process", "host": "0s"}})),
        EQUAL,
    ),
]

RELATIONS = [
    *COLLECTIVES,
    *OPERATIONS,
    *STEPS,
    *FABRICS,
    *FAULTS,
    *JOBS,
    *SITES,
    *NOISE,
    *SWEEPS,
    *EXPLANATIONS,
    *CALIBRATION,
    *SPELLINGS,
    *IMPORTS,
    *ENGINES,
]
