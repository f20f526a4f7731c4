"""The constants of NCCL's execution, launches, transports and kernels, with units and origins.

One table, which everything else reads: what a step of a block, a hop, a message, a launch, a wire
or a kind of network costs, and what kernels of a model reach of a GPU's peaks. A constant is
`given` by a source or `fitted` to runs, which are named, by a function that estimates it from
them. It does not hold the tables by which NCCL itself chooses (`netsim.nccl.facts`), or figures of
machines (`topologies/`).
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from netsim.base.values import dataclass

MICRO = 1e-6
UNITS = ("s", "bytes/s", "bytes", "1")
SIMULATED = "netsim.measured.estimate:by_simulation"
ANY_SIZE = (0, 1 << 62)


@dataclass(frozen=True, slots=True)
class Fitted:
    """The runs that a constant was fitted to, by their ids in scenarios/measured/index.yaml, and
    `estimator`, the function (module:name) that estimates it from them.

    `sizes` are the bytes of calls between which the runs show it, `evidence` is what they show.
    """

    runs: tuple[str, ...]
    evidence: str
    estimator: str = SIMULATED
    sizes: tuple[int, int] = ANY_SIZE


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant in SI units, what it belongs to, and either the source that gave it or the runs
    that it was fitted to.

    `enters` are the figures of a `calibration` in which it is contained, where that is not the one
    of its own name.
    """

    id: str
    value: float
    unit: str
    belongs: str
    given: str = ""
    fitted: Fitted | None = None
    enters: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.given) == (self.fitted is not None):
            raise ValueError(f"{self.id}: expected either what it is given by, or fitted to")
        if self.unit not in UNITS:
            raise ValueError(f"{self.id}: expected a unit of {', '.join(UNITS)}, got {self.unit!r}")
        if self.fitted is not None and not self.fitted.runs:
            raise ValueError(f"{self.id}: fitted to no run")

    @property
    def figures(self) -> tuple[str, ...]:
        """The names by which a `calibration` replaces it; those of one GPU generation are alike."""
        own = self.id.partition(".")[2] if self.id.startswith("sm_") else self.id
        return self.enters or (own,)

    @property
    def assumed(self) -> bool:
        """Whether it is given by nothing better than a likeness that is told."""
        return self.given.startswith(("assumed", "taken over"))


class _Stated(NamedTuple):
    """A constant but for its origin."""

    id: str
    value: float
    belongs: str
    unit: str

    def given(self, source: str) -> Constant:
        """It is as a source says."""
        return Constant(self.id, self.value, self.unit, self.belongs, given=source)

    def fitted(
        self,
        evidence: str,
        *runs: str,
        sizes: tuple[int, int] = ANY_SIZE,
        estimator: str = SIMULATED,
        enters: tuple[str, ...] = (),
    ) -> Constant:
        """It is as runs show."""
        found = Fitted(runs, evidence, estimator, sizes)
        return Constant(self.id, self.value, self.unit, self.belongs, fitted=found, enters=enters)


_seconds, _rate = partial(_Stated, unit="s"), partial(_Stated, unit="bytes/s")
_bytes, _ratio = partial(_Stated, unit="bytes"), partial(_Stated, unit="1")

TUNING = "NCCL 2.30, src/graph/tuning.cc"
KIB, MIB = 1 << 10, 1 << 20
SLOPE = "netsim.measured.estimate:slope_by_channels"
FLOOR = "netsim.measured.estimate:floor_of_launches"
USABLE = "netsim.measured.estimate:usable_part"
MOST_OF_NIC = "netsim.measured.estimate:most_of_a_nic"
STEP_UP = "netsim.measured.estimate:step_up"

# Runs that show several constants.
H100_RING = ("h100_sxm_8_all_reduce_1", "h100_sxm_8_all_gather_1", "h100_sxm_8_reduce_scatter_1")
H100_SENDS = ("h100_dgx_8_sendrecv_1", "xxrjun_c01_h100_10x8_sendrecv_1")
B200_SENDS = ("together_b200_use3a_64x8_sendrecv_1",)
SENDS_BETWEEN = (
    *(f"xxrjun_c01_h100_10x{gpus}_sendrecv_1" for gpus in (1, 2, 8)),
    *("together_b200_use3a_2x8_sendrecv_1", "together_b200_use3a_64x8_sendrecv_1"),
)
A100_ALONE = ("a100_thanos_8_all_reduce_2",)
A100_RING = (*A100_ALONE, "a100_superbench_8_all_reduce_1")
GH200_ALONE = ("gh200_alps_4_all_reduce_1",)
AIC = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")
AIC_A100 = tuple(f"aic_a100_sxm_2273_{gpus}_{name}" for gpus in (2, 4, 8) for name in AIC)
AIC_B200 = tuple(f"aic_b200_sxm_2275_{gpus}_{name}" for gpus in (2, 4, 8) for name in AIC)
AIC_GB200 = tuple(f"aic_gb200_2292_{gpus}_{name}" for gpus in (2, 4) for name in AIC)
DELL = ("dell_xe9680_h100_2x8_all_reduce_1", "dell_xe9680_h100_4x8_all_reduce_1")
ALPS = tuple(f"alps_gh200_{nodes}x4_all_reduce_1" for nodes in (2, 4, 8, 16))
POLARIS_2 = ("polaris_a100_2x4_all_reduce_2", "polaris_a100_2x4_all_gather_2")
POLARIS_8 = ("polaris_a100_8x4_all_reduce_2", "polaris_a100_8x4_all_gather_2")
BEGINS = tuple(f"begin.{key}" for key in ("ll", "ll128", "simple"))
DELIVERIES = tuple(f"network.delivery.{key}" for key in ("ll", "ll128", "simple"))
POSTS = tuple(f"network.post.{key}" for key in ("ll", "ll128", "simple"))

LAUNCH = (
    _seconds("launch.host", 4.35 * MICRO, "a launch by the host").fitted(
        "one process for 8 GPUs takes 34.6-35.1 us with one channel, whatever it moves (reported "
        "for 2 to 8 A100 in nccl-tests#123: 10 us, then 4 more for each)",
        *("h100_sxm_8_all_reduce_1", "h100_sxm_8_all_reduce_2", "a100_superbench_8_all_reduce_1"),
        estimator=FLOOR,
        sizes=(0, 32 * KIB),
    ),
    _seconds(
        "launch.each_channel.2_12", 0.035 * MICRO, "a launch by the host, NCCL 2.12 and later"
    ).fitted(
        "one process for 8 H100 (2.26): 35.1 us with 1 channel, 36.7 with 4, 37.5 with 8, 41.5 "
        "with 24",
        *("h100_sxm_8_all_reduce_1", "h100_sxm_8_all_reduce_2"),
        estimator=SLOPE,
        sizes=(32 * KIB, MIB),
        enters=("launch.each_channel",),
    ),
    _seconds(
        "launch.each_channel.2_10", 0.2 * MICRO, "a launch by the host, NCCL before 2.12"
    ).fitted(
        "one process for 8 A100: 34.8 us with 1 channel, 41.1 with 4, 47.5 with 8, 74.8 with 24",
        *("a100_superbench_8_all_reduce_1", "a100_superbench_8_all_gather_1"),
        estimator=SLOPE,
        sizes=(32 * KIB, MIB),
        enters=("launch.each_channel",),
    ),
    _seconds(
        "launch.each_send", 0.45 * MICRO, "a launch by the host of grouped sends, before NCCL 2.28"
    ).fitted(
        "alltoall of one process on 8 A100 takes 87 us: 10.9 a GPU, for 16 sends and receives",
        "a100_superbench_8_alltoall_1",
        sizes=(0, 128 * KIB),
    ),
    _seconds(
        "launch.each_send.2_28", 0.2 * MICRO, "a launch by the host, NCCL 2.28 and later"
    ).fitted(
        "alltoall is one call of its own: on 8 H100 (2.29) it takes 7.4 us of 512 B, no more than "
        "its kernel",
        "aic_h100_sxm_2292_8_alltoall",
        sizes=(0, 8 * KIB),
        enters=("launch.each_send",),
    ),
    _seconds("launch.gap", 2.5 * MICRO, "a launch on the GPU").given(
        "assumed: from kernel to kernel in a stream 2-3 us, the middle; common experience"
    ),
    _seconds("launch.block_start", 1.5 * MICRO, "a launch on the GPU").given(
        "assumed: a block loads channel and work into shared memory first, 1-2 us, the middle"
    ),
    _seconds("launch.graph_host", 0.5 * MICRO, "a launch in a CUDA graph").given(
        "nccl#1984: 0.5 us an operation on 4 H800"
    ),
    _seconds("launch.graph_gap", 1.25 * MICRO, "a launch in a CUDA graph").given(
        "assumed: from kernel to kernel in a graph 1-1.5 us, the middle; common experience"
    ),
    _seconds("begin.ll", 0.0, "the start of a kernel").given("by definition: others are beyond it"),
    _seconds("begin.ll128", 6.0 * MICRO, "the start of a kernel").fitted(
        f"calls begin later with LL128, though by less than the 7.4 us of {TUNING} (baseLat)",
        *(*A100_ALONE, *GH200_ALONE),
        sizes=(2 * MIB, 16 * MIB),
    ),
    _seconds("sm_70.begin", 3.3 * MICRO, "the start of a kernel on Volta").given(
        "taken over from sm_80: no run of V100 has a process for each GPU"
    ),
    _seconds("sm_80.begin", 3.3 * MICRO, "the start of a kernel on Ampere").fitted(
        "all_gather of 512 B takes 9.0, 10.8 and 15.6 us on 2, 4 and 8 A100: 8.0 but for its hops; "
        "on Hopper 4.5",
        *AIC_A100,
        sizes=(0, 4 * KIB),
        enters=BEGINS,
    ),
    _seconds("sm_90.begin", 0.0, "the start of a kernel on Hopper").given(
        "by definition: others are beyond it"
    ),
    _seconds("sm_100.begin", 3.3 * MICRO, "the start of a kernel on Blackwell").fitted(
        "all_gather of 512 B takes 8.4, 11.2 and 16.3 us on 2, 4 and 8 B200, 9.4 and 11.7 on 2 and "
        "4 GB200: 7.0-8.2 but for its hops",
        *(*AIC_B200, *AIC_GB200),
        sizes=(0, 4 * KIB),
        enters=BEGINS,
    ),
    _seconds("sm_70.begin_channels", 0.7 * MICRO, "the start of a kernel on Volta").given(
        "taken over from sm_80"
    ),
    _seconds("sm_80.begin_channels", 0.7 * MICRO, "the start of a kernel on Ampere").fitted(
        "blocks do not begin at once, and the last one counts: for each doubling of the channels",
        *AIC_A100,
        sizes=(8 * KIB, 512 * KIB),
    ),
    _seconds("sm_90.begin_channels", 0.25 * MICRO, "the start of a kernel on Hopper").given(
        "taken over from sm_100"
    ),
    _seconds("sm_100.begin_channels", 0.25 * MICRO, "the start of a kernel on Blackwell").fitted(
        "blocks do not begin at once, and the last one counts: for each doubling of the channels",
        *(*AIC_B200, *AIC_GB200),
        sizes=(8 * KIB, 512 * KIB),
    ),
    _seconds("begin.sends", 0.8 * MICRO, "the start of a kernel of grouped sends").fitted(
        "alltoall of 512 B takes 0.5-1.5 us longer than rings of LL begin with, on 2 and 4 A100, "
        "H100, B200 and GB200: blocks share out their warps first",
        *(one for one in (*AIC_A100, *AIC_B200, *AIC_GB200) if one.endswith("alltoall")),
        *(f"aic_h100_sxm_2292_{gpus}_alltoall" for gpus in (2, 4)),
        sizes=(0, 8 * KIB),
        enters=BEGINS,
    ),
    _seconds("begin.simple", 1.8 * MICRO, "the start of a kernel").given(
        f"{TUNING}, baseLat: 8.4 us of Simple less 6.6 of LL (Ring)"
    ),
)

BLOCKS = (
    _seconds("sm_70.step_cost.ll", 0.9 * MICRO, "blocks of Volta").given(
        "taken over from sm_80: no run of V100 has a process for each GPU"
    ),
    _seconds("sm_70.step_cost.ll128", 2.6 * MICRO, "blocks of Volta").given(
        "taken over from sm_80: no run of V100 has a process for each GPU"
    ),
    _seconds("sm_70.step_cost.simple", 2.5 * MICRO, "blocks of Volta").given(
        "taken over from sm_90"
    ),
    _seconds("sm_80.step_cost.ll", 0.68 * MICRO, "blocks of Ampere").fitted(
        "a ring of LL takes as long for any wave of lines, however full",
        *(*A100_ALONE, *AIC_A100),
        sizes=(0, MIB),
    ),
    _seconds("sm_80.step_cost.ll128", 2.6 * MICRO, "blocks of Ampere").fitted(
        "rings of LL128", *A100_RING, sizes=(2 * MIB, 16 * MIB)
    ),
    _seconds("sm_80.step_cost.simple", 3.5 * MICRO, "blocks of Ampere").fitted(
        "slices of rings cost more than their bytes: 2.5 us with a channel at 9.75 GB/s of wire, "
        "3.5 with blocks as fast as here",
        *A100_RING,
        sizes=(32 * MIB, 4096 * MIB),
    ),
    _seconds("sm_90.step_cost.ll", 0.32 * MICRO, "blocks of Hopper").fitted(
        "a ring of LL takes as long for any wave of lines, however full",
        *(*GH200_ALONE, "h100_sxm_8_all_reduce_1"),
        sizes=(0, 2 * MIB),
    ),
    _seconds("sm_90.step_cost.ll128", 1.4 * MICRO, "blocks of Hopper").fitted(
        "rings of LL128", *(*H100_RING, *GH200_ALONE), sizes=(4 * MIB, 32 * MIB)
    ),
    _seconds("sm_90.step_cost.simple", 2.5 * MICRO, "blocks of Hopper").fitted(
        "sends in chunks of 512 KiB move 20.5 GB/s a channel, in chunks of 128 KiB 15.2: both are "
        "46 GB/s a block, and slices that cost what rings on A100 seemed to show",
        *H100_SENDS,
        sizes=(32 * MIB, 64 * MIB),
    ),
    _seconds("sm_100.step_cost.ll", 0.35 * MICRO, "blocks of Blackwell").fitted(
        "a ring of LL takes as long for any wave of lines, however full",
        "gb200_oke_8_all_reduce_1",
        sizes=(0, 2 * MIB),
    ),
    _seconds("sm_100.step_cost.ll128", 1.4 * MICRO, "blocks of Blackwell").given(
        "taken over from sm_90: in no run of Blackwell does NCCL choose LL128"
    ),
    _seconds("sm_100.step_cost.simple", 2.5 * MICRO, "blocks of Blackwell").given(
        "taken over from sm_90, as sends show for both together with rate.simple"
    ),
    _rate("sm_70.rate.ll", 39e9 / 12, "a channel of Volta").given(
        f"{TUNING}, llMaxBws of one node: 39 GB/s over 12 channels"
    ),
    _rate("sm_80.rate.ll", 4.5e9, "a channel of Ampere").fitted(
        f"waves of rings of LL on 8 A100 take 0.85 us each ({TUNING}, llMaxBws of one node, has "
        "87.7 GB/s over 24 channels, which would be 1.1)",
        *AIC_A100,
        sizes=(512 * KIB, 2 * MIB),
    ),
    _rate("sm_90.rate.ll", 141e9 / 24, "a channel of Hopper").given(
        f"{TUNING}, llMaxBws of one node: 141 GB/s over 24 channels"
    ),
    _rate("sm_100.rate.ll", 8e9, "a channel of Blackwell").fitted(
        f"rings of LL of 1-8 MiB: 7.2-8.1 GB/s a channel ({TUNING}, llMaxBws of one node, has 282 "
        "over 32 channels)",
        *(*AIC_B200, *AIC_GB200),
        sizes=(MIB, 8 * MIB),
    ),
    _rate("sm_70.rate.ll128", 20e9 / 2, "a channel of Volta").given(
        f"{TUNING}, perChMaxRingLL128Bws: 20 GB/s for a channel of the search, two blocks"
    ),
    _rate("sm_80.rate.ll128", 20e9 / 2, "a channel of Ampere").given(
        f"{TUNING}, perChMaxRingLL128Bws: 20 GB/s for a channel of the search, two blocks"
    ),
    _rate("sm_90.rate.ll128", 36.7e9 / 2, "a channel of Hopper").given(
        f"{TUNING}, perChMaxRingLL128Bws: 36.7 GB/s for a channel of the search, two blocks"
    ),
    _rate("sm_100.rate.ll128", 40e9 / 2, "a channel of Blackwell").given(
        f"{TUNING}, perChMaxRingLL128Bws: 40 GB/s for a channel of the search, two blocks"
    ),
    _rate("sm_70.rate.simple", 22e9, "a channel of Volta").given(
        f"{TUNING}, perChMaxTreeBws 26.5 and perChMaxRingLL128Bws 20 GB/s: about the middle"
    ),
    _rate("sm_80.rate.simple", 22e9, "a channel of Ampere").given(
        f"{TUNING}, perChMaxTreeBws 24 and perChMaxRingLL128Bws 20 GB/s: the middle"
    ),
    _rate("sm_90.rate.simple", 46e9, "a channel of Hopper").fitted(
        "sends, each made by half a block: 20.5 GB/s a channel in chunks of 512 KiB, 15.2 in "
        "chunks of 128 KiB",
        *H100_SENDS,
        sizes=(32 * MIB, 64 * MIB),
    ),
    _rate("sm_100.rate.simple", 46e9, "a channel of Blackwell").fitted(
        "sends, each made by half a block: 14.9 GB/s a channel in chunks of 128 KiB",
        *B200_SENDS,
        sizes=(16 * MIB, 4096 * MIB),
    ),
    _bytes("grain.ll", 4096.0, "a wave of LL").given(
        "NCCL, src/device/prims_ll.h: 512 threads of 8 bytes"
    ),
    _bytes("grain.ll128", 1920.0, "a warp of LL128").given(
        "NCCL, src/device/prims_ll128.h: 2 KiB a warp, of which 15/16 is data"
    ),
    _ratio("rccl.grain", 0.5, "a wave of LL with RCCL").given(
        "RCCL, src/include/device.h: blocks of 256 threads"
    ),
    _ratio("most_pieces", 8.0, "the simulation of LL and LL128").given(
        "by definition: pieces in which a chunk is followed; more change no time that is printed"
    ),
    _ratio("share.of_a_way", 0.5, "blocks that do two things at once").given(
        "NCCL, src/device/all_reduce.h: Simple gives each way of a tree or chain half of the "
        "threads (LL and LL128 give 70 % to the way up, whose passes take more of them)"
    ),
    _ratio("share.of_a_step", 0.7, "rings of LL128").given(
        "assumed: a block's step begins and ends with a barrier (NCCL, src/device/prims_ll128.h); "
        "with 0.6 to 0.8 of its cost before data is passed on, 2 x 8 A100 take as long as measured "
        "for an all_gather of 256 KiB to 1 MiB (sophia_dgxa100_2x8_all_gather_1)"
    ),
    _ratio("send_share", 1.5, "sends and receives that share a block, LL").fitted(
        "parts of 16-32 KiB with LL move 2.9, 4 and 6.8 GB/s on A100, H100 and B200 where half of "
        "a block would move 2.2, 2.9 and 4: who receives waits for lines most of the time",
        *(f"{name}_2_alltoall" for name in ("aic_a100_sxm_2273", "aic_b200_sxm_2275")),
        "aic_h100_sxm_2292_2_alltoall",
        sizes=(16 * KIB, 2 * MIB),
    ),
    _ratio("share.of_a_task", 0.25, "blocks of CollNetDirect").given(
        "assumed: its four groups of threads (NCCL, src/device/all_reduce.h) are equal; no run"
    ),
    _ratio("nvls.pieces", 4.0, "the simulation of NVLS").given(
        "by definition: pieces in which a head's chunk is followed, as loads and stores overlap"
    ),
    _ratio("collnet.group", 8.0, "operations of switches that reduce").given(
        "NCCL, src/transport/coll_net.cc, COLLNET_GROUP_NSUBS: channels of one operation"
    ),
    _ratio("payload.ll", 0.5, "lines of LL").given(
        "NCCL, src/include/device.h: 8 of 16 bytes are data"
    ),
    _ratio("payload.ll128", 0.9375, "lines of LL128").given(
        "NCCL, src/include/device.h: 120 of 128 bytes are data"
    ),
    _ratio("payload.simple", 1.0, "Simple").given("NCCL, src/include/device.h: no flags in data"),
    _ratio("fifo.slots", 8.0, "a FIFO").given("NCCL, src/include/device.h, NCCL_STEPS"),
    _bytes("fifo.ll", 524288.0, "a FIFO of LL").given(
        "NCCL, src/include/device.h: 512 threads, 8 lines of 16 bytes, 8 slots"
    ),
    _bytes("fifo.ll128", 4915200.0, "a FIFO of LL128").given(
        "NCCL, src/include/device.h: 640 threads, 120 elements of 8 bytes, 8 slots"
    ),
    _bytes("fifo.simple", 4194304.0, "a FIFO of Simple").given("NCCL, NCCL_BUFFSIZE: 4 MiB"),
)

INSIDE = (
    _seconds("nvlink.hop.ll", 0.5 * MICRO, "NVLink, its wire included").fitted(
        f"rings of LL ({TUNING}, hwLat, has 0.6)",
        *(*A100_ALONE, *GH200_ALONE, "h100_sxm_8_all_reduce_1"),
        sizes=(0, MIB),
        enters=("nvlink.sync.ll",),
    ),
    _seconds("sm_100.nvlink.hop.ll", 1.0 * MICRO, "NVLink of Blackwell, its wire included").fitted(
        "rings of LL: 1.3 us a step on 2 to 8 GPUs, of which waves of lines show 0.4 for the block",
        *(*AIC_B200, *AIC_GB200, "gb200_oke_8_all_reduce_1"),
        sizes=(0, MIB),
        enters=("nvlink.sync.ll",),
    ),
    _seconds("nvlink.hop.ll128", 1.1 * MICRO, "NVLink, its wire included").fitted(
        f"rings of LL128 ({TUNING}, hwLat, has 1.25 for Tree; 1.9 for Ring contains chunks)",
        *(*A100_RING, *H100_RING, *GH200_ALONE),
        sizes=(2 * MIB, 32 * MIB),
        enters=("nvlink.sync.ll128",),
    ),
    _seconds("nvlink.sync.simple", 0.5 * MICRO, "NVLink").given(
        f"{TUNING}, hwLat, Ring: 3.4 us, less 2.5 of a slice and 0.4 of the wire"
    ),
    _seconds("sm_100.nvlink.sync.simple", 1.7 * MICRO, "NVLink of Blackwell").fitted(
        "rings of Simple on 4 GPUs take 3-4 us a hop more at 8-16 MiB than with 0.5 us, alltoall 1 "
        "less",
        *(*AIC_B200, *AIC_GB200),
        sizes=(4 * MIB, 32 * MIB),
    ),
    _seconds("nvlink.credit", 0.6 * MICRO, "NVLink").given(
        f"{TUNING}, hwLat of LL: a credit is a flag that travels back and is polled as a line is"
    ),
    _seconds("pcie.hop.ll", 1.0 * MICRO, "PCIe between GPUs, its wire included").given(
        f"{TUNING}, hwLat"
    ),
    _seconds("pcie.hop.ll128", 1.9 * MICRO, "PCIe between GPUs, its wire included").given(
        f"{TUNING}, hwLat, Tree (2.5 for Ring contains chunks)"
    ),
    _seconds("pcie.sync.simple", 5.7 * MICRO - 2.95 * MICRO, "PCIe between GPUs").given(
        f"{TUNING}, hwLat, Ring: 5.7 us, less 2.5 of a slice and 0.45 of the wire"
    ),
    _seconds("pcie.credit", 1.0 * MICRO, "PCIe between GPUs").given(
        f"{TUNING}, hwLat of LL: a credit is a flag that travels back and is polled as a line is"
    ),
    _seconds("shm.poll", 0.8 * MICRO, "the host's memory between GPUs").fitted(
        "a line is polled over PCIe: a ring of LL takes 2.75 us a hop on 8 RTX 4090 and 3 on 2 RTX "
        "2080 Ti, up to 8 KiB; between peers 0.8 less",
        *("rtx4090_8_8_all_reduce_1", "rtx2080ti_autodl_2_all_reduce_1"),
        sizes=(0, 8 * KIB),
        enters=("shm.sync.ll", "shm.sync.ll128"),
    ),
    _ratio("host_memory.simple", 1.35, "the host's memory between GPUs").fitted(
        "GPUs' loads wait for answers: rings reach 15 GB/s each way on gen4",
        "rtx4090_8_8_all_reduce_1",
        sizes=(MIB, 8192 * MIB),
    ),
    _ratio("host_memory.ll", 2.1, "the host's memory between GPUs").fitted(
        "lines are read until they are there: rings reach 9 GB/s each way on gen4",
        "rtx4090_8_8_all_reduce_1",
        sizes=(128 * KIB, 512 * KIB),
    ),
    _ratio("pcie.both_ways", 1.52, "PCIe between GPUs").fitted(
        "what loads and stores reach of a link's rate, both ways together: 9.4 GB/s each way of "
        "12.6 on gen3, 20.6 of 26 on gen4",
        *("v100pcie_bessemer_4_all_reduce_1", "rtx4090_8_8_all_reduce_2"),
        sizes=(16 * MIB, 8192 * MIB),
    ),
    _ratio("pcie.efficiency", 25.8 / 31.5, "PCIe").given(
        "p2pBandwidthLatencyTest on 2 RTX 4090, gen4 x16: 25.8 of 31.5 GB/s (the host of "
        "rtx4090_8_8_all_reduce_2)"
    ),
    _seconds("wire.nvlink", 200e-9, "a traversal of NVLink with the switch").given(
        "assumed from public figures: a remote load over NVSwitch returns after 0.7-0.9 us, 4 "
        "traversals"
    ),
    _seconds("wire.nvlink_direct", 350e-9, "NVLink without a switch").fitted(
        "a hop takes hardly less than one with two traversals",
        *GH200_ALONE,
        sizes=(0, 64 * KIB),
        enters=("latencies.nvlink",),
    ),
    _seconds("wire.xgmi", 250e-9, "a traversal of xGMI").given(
        "assumed: as NVLink, with a SerDes of longer reach"
    ),
    _seconds("wire.c2c", 150e-9, "a traversal of NVLink-C2C").given(
        "assumed from public figures: from a Grace to GPU memory and back 0.5-0.7 us, with the "
        "memory's own time"
    ),
    _seconds("wire.pcie", 150e-9, "a traversal of PCIe with the switch").given(
        "PEX88000 and PEX89000 data sheets: cut-through in 105-150 ns"
    ),
    _seconds("wire.upi", 70e-9, "a traversal between CPUs").given(
        "Intel Memory Latency Checker: remote less local latency on servers of two sockets"
    ),
    _seconds("wire.hostmem", 90e-9, "the host's memory").given(
        "Intel Memory Latency Checker: DRAM under little load"
    ),
    _seconds("wire.nic", 250e-9, "a NIC").given(
        "assumed from public figures: half of the 0.5-0.6 us that two NICs add to a cable"
    ),
    _seconds("wire.metre", 5e-9, "a metre of cable").given(
        "light in fibre and signals in copper: about 0.2 m a nanosecond"
    ),
)

NVLS = (
    _ratio("sm_90.nvls_efficiency", 0.85, "NVLS on Hopper").given(f"{TUNING}, nvlsEfficiency"),
    _ratio("sm_100.nvls_efficiency", 0.74, "NVLS on Blackwell").given(f"{TUNING}, nvlsEfficiency"),
    _seconds("nvls_sync", 1.5 * MICRO, "NVLS").given(
        "assumed: about three hops of LL over NVLink; its history names no source"
    ),
    _seconds("sm_90.nvls_part", 0.3 * MICRO, "NVLS on Hopper").fitted(
        "a loop of 256 KiB (8 chunks of 32 KiB) takes 19-20 us on 8 H100, at 8-32 MiB",
        "h100_sxm_8_all_reduce_2",
        sizes=(2 * MIB, 32 * MIB),
    ),
    _seconds("sm_100.nvls_part", 0.95 * MICRO, "NVLS on Blackwell").fitted(
        "a loop of 256 KiB takes 20-22 us on 8 B200, at 16-64 MiB; one of 2.3 MiB (72 chunks of 32 "
        "KiB) 180 us on 72",
        *("b200_gke_8_all_reduce_1", "gb200_oke_8_all_reduce_1"),
        "coreweave_gb200_nvl72_18x4_all_reduce_1",
        sizes=(4 * MIB, 1024 * MIB),
    ),
    _rate("sm_90.nvls_copy_rate", 21e9, "NVLS on Hopper").fitted(
        "a loop of 512 KiB takes no more than the 29-32 us that NVLink needs for it",
        "h100_sxm_8_all_reduce_2",
        sizes=(2 * MIB, 32 * MIB),
    ),
    _rate("sm_100.nvls_copy_rate", 30e9, "NVLS on Blackwell").fitted(
        "as nvls_part: what large loops take beyond it",
        *("b200_gke_8_all_reduce_1", "gb200_oke_8_all_reduce_1"),
        sizes=(64 * MIB, 8192 * MIB),
    ),
)

NETWORK = (
    _seconds("network.notice", 1.5 * MICRO, "proxies").fitted(
        "two hops more of a tree of LL on 4 x 8 H100 than on 2 x 8 take 9.9 us",
        *DELL,
        sizes=(0, 4 * KIB),
    ),
    _seconds("network.post.ll", 1.0 * MICRO, "proxies").given(
        f"{TUNING}, netOverhead: 1 us on Intel"
    ),
    _seconds("network.post.ll128", 1.0 * MICRO, "proxies").given(
        f"{TUNING}, netOverhead: 1 us on Intel"
    ),
    _seconds("network.post.simple", 1.2 * MICRO, "proxies").fitted(
        "there is a tail to write, too: NVLSTree on 10 x 8 H100 sends 64 KiB in at most 1.7 us",
        "xxrjun_c01_h100_10x8_all_reduce_1",
        sizes=(32 * MIB, 4096 * MIB),
    ),
    _ratio("network.post.amd", 2.0, "proxies on CPUs of AMD, Simple").given(
        f"{TUNING}, netOverhead: 2 us on AMD, 1 on Intel (trees of LL on A100 do not show it)"
    ),
    _seconds("network.pool", 0.4 * MICRO, "proxies, a message of grouped sends").fitted(
        "alltoall of 32-64 MiB on 10 x 8 H100 and of 2-8 MiB on 2 x 8 A100 would be too slow with "
        "more",
        *("xxrjun_c01_h100_10x8_alltoall_1", "sophia_dgxa100_2x8_alltoall_1"),
        sizes=(2 * MIB, 64 * MIB),
    ),
    _seconds("network.pool_turn", 7.5 * MICRO, "a channel of grouped sends between nodes").fitted(
        "128 KiB every 8.6 us over one channel to a peer (15 GB/s), 10.5 over two, 12 over four, "
        "whether a block only sends or receives as well",
        *SENDS_BETWEEN,
        sizes=(32 * MIB, 4096 * MIB),
    ),
    _seconds("network.pool_each", 1.25 * MICRO, "a channel of grouped sends between nodes").fitted(
        "as network.pool_turn: what each channel to the peer adds",
        *SENDS_BETWEEN,
        sizes=(32 * MIB, 4096 * MIB),
    ),
    _seconds("network.pool_start", 6.0 * MICRO, "grouped sends between nodes").fitted(
        "sends of 1 KiB-2 MiB on 2 x 8 B200 take 3-12 us more than their messages, alltoall of 256 "
        "B on 2 x 8 A100 3",
        *("together_b200_use3a_2x8_sendrecv_1", "sophia_dgxa100_2x8_alltoall_1"),
        sizes=(256, MIB),
    ),
    _seconds("network.message", 0.05 * MICRO, "NICs").given(
        "assumed: 20 million messages a second; its history names no source, and no run shows it"
    ),
    _seconds("network.delivery.ll", 0.3 * MICRO, "a block that receives").given(
        "assumed: flags lie in the data, so that only a poll of GPU memory is left"
    ),
    _seconds("network.delivery.ll128", 3.0 * MICRO, "a block that receives").given(
        f"{TUNING}, hwLat of NET, Tree: 8.5 us, of which notice, post, wire and NICs are 5.5"
    ),
    _seconds("network.delivery.simple", 1.5 * MICRO, "a block that receives").given(
        "assumed: completion, proxy and a flag over PCIe 1-2 us, the middle; inferred from the 14 "
        f"us of {TUNING}, hwLat of NET"
    ),
    _seconds("network.flush", 1.5 * MICRO, "receivers before Hopper, Simple").given(
        "assumed: a read of the GPU's memory by the NIC (NCCL, src/transport/net.cc) 1-2 us, the "
        "middle"
    ),
    _seconds("network.credit", 2.0 * MICRO, "proxies").given(
        "assumed: as a flag from GPU to proxy, for which 2 us was inferred before runs showed 1.5"
    ),
    _seconds("local_credit", 1.0 * MICRO, "a block and the proxy of its rank").given(
        "assumed: about a flag over PCIe; its history names no source"
    ),
    _seconds("network.reduction.all", 31.0 * MICRO, "operations of switches that reduce").given(
        f"{TUNING}, hwLat of NET, CollNetDirect"
    ),
    _seconds("network.reduction.message", 14.0 * MICRO, "operations of switches that reduce").given(
        f"{TUNING}, hwLat of NET, Tree Simple: what of it is a message"
    ),
)

SLINGSHOT = (
    _bytes("cxi.inline_bytes", 192.0, "Slingshot").given(
        "libfabric, prov/cxi, CXIP_INJECT_SIZE: what a request of Cassini holds"
    ),
    _seconds("cxi.fetch", 1.0 * MICRO, "Slingshot").fitted(
        "trees of LL take about 1 us a hop more from 128 bytes (256 on the wire) on",
        *("alps_gh200_64x4_all_reduce_1", "polaris_a100_8x4_all_reduce_2"),
        sizes=(128, 2 * KIB),
        enters=("network.path.fetch",),
    ),
    _bytes("cxi.eager_bytes", 4096.0, "Slingshot").fitted(
        "each hop of a tree of LL takes 7.5-8.1 us more from 4 KiB (8 on the wire) on, on 2 to 64 "
        "nodes",
        *(*ALPS, "alps_gh200_64x4_all_reduce_1"),
        estimator=STEP_UP,
        sizes=(KIB, 8 * KIB),
    ),
    _seconds("cxi.handling.ll", 11.5 * MICRO, "Slingshot").fitted(
        "rings take 10-14 us a message and NIC on 8 x 4 A100 from 8 KiB on, 9-14 on 2 to 16 nodes "
        "of Alps",
        *(*POLARIS_8, *ALPS[:3]),
        sizes=(64 * KIB, 2 * MIB),
        enters=("network.path.handling.ll",),
    ),
    _seconds("cxi.handling.simple", 5.0 * MICRO, "Slingshot").fitted(
        "slices of 22-87 KiB on 2 to 16 nodes of Alps keep a NIC for 4-6 us",
        *ALPS,
        sizes=(4 * MIB, 64 * MIB),
        enters=("network.path.handling.simple",),
    ),
    _seconds("cxi.software.match", 2.3 * MICRO, "Slingshot, receives matched in software").fitted(
        "what every hop takes more than where the NIC matches",
        *(*ALPS, "polaris_a100_2x4_all_reduce_2"),
        sizes=(0, 2 * KIB),
        enters=DELIVERIES,
    ),
    _seconds("cxi.software.eager", 9.0 * MICRO, "Slingshot, receives matched in software").fitted(
        "even small messages take 9.3 us each, for they are copied out of a buffer: rings on 2 x 4 "
        "A100, 128 bytes to 16 KiB",
        "polaris_a100_2x4_all_gather_2",
        sizes=(128, 16 * KIB),
        enters=("network.path.handling.eager",),
    ),
    _seconds(
        "cxi.software.rendezvous", 4.5 * MICRO, "Slingshot, receives matched in software"
    ).fitted(
        "each hop of a tree takes 7.5-8.1 us more where the receiver asks for the message, 3 of "
        "them for each channel of a NIC",
        *(*ALPS, "alps_gh200_64x4_all_reduce_1"),
        sizes=(4 * KIB, 32 * KIB),
        enters=("network.path.rendezvous",),
    ),
    _seconds("cxi.software.first", 3.0 * MICRO, "Slingshot, receives matched in software").fitted(
        "the first message of a connection that is asked for: 3 us for each further channel of a "
        "NIC",
        *(*ALPS, "alps_gh200_64x4_all_reduce_1"),
        sizes=(8 * KIB, 32 * KIB),
        enters=("network.path.handling.first",),
    ),
    _seconds("cxi.alternative_read", 5.0 * MICRO, "Slingshot, FI_CXI_RDZV_PROTO=alt_read").fitted(
        "16-18 us a message on 2 x 4 A100",
        *POLARIS_2,
        sizes=(64 * KIB, 2 * MIB),
        enters=("network.path.handling.read",),
    ),
    _seconds("cxi.notice", -1.0 * MICRO, "Slingshot, beyond verbs").fitted(
        "a hop of a tree of 32 bytes takes 4.7 us on 8 x 4 A100; with the notice and the post of "
        "verbs it would be 6.4",
        "polaris_a100_8x4_all_reduce_2",
        sizes=(0, 64),
        enters=("network.notice",),
    ),
    _seconds("cxi.post", -0.7 * MICRO, "Slingshot, beyond verbs").fitted(
        "as cxi.notice; the run shows the sum of both",
        "polaris_a100_8x4_all_reduce_2",
        sizes=(0, 64),
        enters=POSTS,
    ),
)

TRANSPORTS = (
    _seconds("infiniband.hop", 230e-9, "InfiniBand").given(
        "QM8700 data sheet: 130 ns a switch; 20 m of cable"
    ),
    _ratio("infiniband.usable", 0.982, "InfiniBand").fitted(
        "a ring over 8 x 400G reaches 392.7 GB/s",
        "gjaion_h100_2x8_all_reduce_2",
        estimator=USABLE,
        enters=("transport.usable",),
    ),
    _seconds("roce.hop", 700e-9, "RoCE").given(
        "assumed: 600 ns a switch (Tomahawk class) and 20 m of cable"
    ),
    _ratio("roce.usable", 0.98, "RoCE").given(
        "Ethernet, IP, UDP and InfiniBand headers and the gap: 82 bytes a 4 KiB packet; no loss to "
        "congestion"
    ),
    _seconds("efa.hop", 1e-6, "EFA").given("assumed: as other Ethernet switches of clouds"),
    _ratio("efa.usable", 0.876, "EFA").fitted(
        "43.8 GB/s of 4 x 100G",
        "aws_p4d_a100_2x8_all_reduce_1",
        estimator=USABLE,
        enters=("transport.usable",),
    ),
    _seconds("efa.latency", 20e-6, "EFA").fitted(
        "what two hops of a tree of LL take more than on InfiniBand",
        "aws_p5_h100_2x8_all_reduce_1",
        sizes=(0, 32 * KIB),
        enters=("transport.latency",),
    ),
    _seconds("efa.stated_latency", 75e-6, "EFA").given("aws-ofi-nccl, as it tells NCCL"),
    _seconds("tcpxo.hop", 1e-6, "FasTrak").given("assumed: as EFA; no run"),
    _ratio("tcpxo.usable", 0.9, "FasTrak").given(
        "assumed: between EFA (0.876) and Slingshot; no run"
    ),
    _seconds("tcpxo.latency", 24e-6, "FasTrak").fitted(
        "a tree of Simple on 2 x 8 H100 takes 122.7 us for 8 bytes, of which NVLink and InfiniBand "
        "would take 74 with two messages",
        "gcp_a3mega_h100_2x8_all_reduce_1",
        sizes=(0, 4 * KIB),
        enters=("transport.latency",),
    ),
    _seconds("slingshot.hop", 350e-9, "Slingshot").given(
        "De Sensi et al., An In-Depth Analysis of the Slingshot Interconnect, SC20: the mean"
    ),
    _ratio("slingshot.usable", 0.923, "Slingshot").fitted(
        "92.3 GB/s of 4 x 200G",
        "alps_gh200_16x4_all_reduce_1",
        estimator=USABLE,
        enters=("transport.usable",),
    ),
    _seconds("tcp.hop", 1e-6, "TCP").given("assumed: as other Ethernet switches of clouds"),
    _ratio("tcp.usable", 0.94, "TCP").given(
        "Ethernet, IP and TCP headers and the gap leave 1448 of 1538 bytes (its history names no "
        "source; this gives the figure)"
    ),
    _rate("tcp.nic_cap", 4.7e9, "TCP").fitted(
        "9.4 GB/s of two NICs (a run with a problem; no healthy one over TCP is public)",
        "polaris_a100_tcp_2x4_all_reduce_1",
        estimator=MOST_OF_NIC,
        enters=("transport.nic_cap",),
    ),
    _seconds("tcp.latency", 15e-6, "TCP").given(
        "assumed: 15-30 us one way through the kernels of usual hosts, the low end; no run"
    ),
    _seconds("nvlink.wire_hop", 200e-9, "NVLink between hosts").given("as wire.nvlink"),
    _ratio("nvlink.usable", 1.0, "NVLink between hosts").given("link_bandwidth is what is usable"),
)

# Published steps (scenarios/measured/training.yaml) that show what kernels reach.
STEPS = "netsim.measured.estimate:by_steps"
MOSAIC_A100 = tuple(f"mosaic_{number:03}" for number in range(77, 137, 6))
MOSAIC_H100 = tuple(f"mosaic_{number:03}" for number in range(20, 70, 6))
LONG_A100 = ("mosaic_090", "mosaic_097", "mosaic_105", "mosaic_113", "mosaic_121", "mosaic_129")
LONG_H100 = ("mosaic_034", "mosaic_040", "mosaic_050", "mosaic_035", "mosaic_041", "mosaic_061")
TITAN = ("titan_t1_0", "titan_t1_1", "titan_a70_van_bfloat16at16")
ROWS = tuple(f"titan_a{size}_{kind}_float8_rowise" for size in (8, 70) for kind in ("van", "async"))
LLAMA_H100 = ("nemo_255", "nemo_126", "titan_t1_2", "titan_a70_van_float8_tewise")
LLAMA_GB200 = ("nemo_123", "nemo_249", "nemo_261", "nemo_267")
LLAMA_GB300 = ("nemo_168", "nemo_204", "nemo_234", "nemo_081", "nemo_129")
FP4_GB200 = ("nemo_078", "nemo_165", "nemo_201")
FP4_GB300 = ("nemo_075", "nemo_120", "nemo_171", "nemo_207")

# What kernels of a model reach. Products: of the dense peak, at the power that the generation's
# servers give a GPU; attention: of the peak of 16 bits, forward and backward.
KERNELS = (
    _seconds("kernel.gap", 2.5 * MICRO, "kernels").given(
        "assumed: from kernel to kernel on a stream, with traces of steps"
    ),
    _ratio("memory.usable", 0.88, "kernels").given(
        "assumed: what long kernels that stream reach of HBM, 0.85-0.93"
    ),
    _ratio("gemm.other", 0.70, "products").given("assumed: as on older GPUs and Hopper"),
    _ratio("sm_70.gemm", 0.80, "products of Volta").given("assumed: cuBLAS, 100 of 125 TFLOPS"),
    _ratio("sm_80.gemm", 0.745, "products of Ampere").fitted(
        "steps of dense models with short sequences", *MOSAIC_A100, estimator=STEPS
    ),
    _ratio("sm_90.gemm", 0.606, "products of Hopper").fitted(
        "steps of dense models with short sequences", *MOSAIC_H100, *TITAN, estimator=STEPS
    ),
    _ratio("sm_90.gemm.fp8", 0.600, "products of Hopper").fitted(
        "steps of Llama in FP8 whose scales are of tensors", *LLAMA_H100, estimator=STEPS
    ),
    _ratio("sm_90.gemm.fp8.row", 0.297, "products of Hopper").fitted(
        "steps of Llama in FP8 whose scales are of rows", *ROWS, estimator=STEPS
    ),
    _ratio("sm_100.gemm", 0.60, "products of Blackwell").given("assumed: as on Hopper"),
    _ratio("sm_100.gemm.fp8", 0.53, "products of Blackwell").fitted(
        "steps of Llama in FP8 and MXFP8", *LLAMA_GB200, estimator=STEPS
    ),
    _ratio("sm_100.gemm.fp4", 0.36, "products of Blackwell").fitted(
        "steps of Llama in NVFP4", *FP4_GB200, estimator=STEPS
    ),
    _ratio("sm_103.gemm", 0.60, "products of Blackwell Ultra").given("assumed: as on Hopper"),
    _ratio("sm_103.gemm.fp8", 0.61, "products of Blackwell Ultra").fitted(
        "steps of Llama in FP8 and MXFP8", *LLAMA_GB300, estimator=STEPS
    ),
    _ratio("sm_103.gemm.fp4", 0.42, "products of Blackwell Ultra").fitted(
        "steps of Llama in NVFP4", *FP4_GB300, estimator=STEPS
    ),
    _ratio("attention.other", 0.50, "attention").given("assumed: as on Ampere"),
    _ratio("attention.other.backward", 0.35, "attention").given("assumed: as on Ampere"),
    _ratio("sm_80.attention", 0.56, "attention on Ampere").fitted(
        "steps with long sequences", *LONG_A100, estimator=STEPS
    ),
    _ratio("sm_80.attention.backward", 0.253, "attention on Ampere").fitted(
        "steps with long sequences", *LONG_A100, estimator=STEPS
    ),
    _ratio("sm_90.attention", 0.60, "attention on Hopper").given("Shah et al. 2024, 3 of cuDNN"),
    _ratio("sm_90.attention.backward", 0.48, "attention on Hopper").given(
        "Shah et al. 2024, figure 6: 470-560 of 989 TFLOPS"
    ),
    _ratio("sm_90.flash2", 0.259, "FlashAttention-2 on Hopper").fitted(
        "steps with long sequences", *LONG_H100, estimator=STEPS
    ),
    _ratio("sm_90.flash2.backward", 0.1455, "FlashAttention-2 on Hopper").fitted(
        "steps with long sequences", *LONG_H100, estimator=STEPS
    ),
    _ratio("sm_100.attention", 0.55, "attention on Blackwell").given("assumed: as on Hopper"),
    _ratio("sm_100.attention.backward", 0.36, "attention on Blackwell").given(
        "assumed: below Hopper's, for exponents and shared memory have not grown with products"
    ),
    _ratio("sm_103.attention", 0.70, "attention on Blackwell Ultra").given(
        "assumed: twice the exponents of Blackwell"
    ),
    _ratio("sm_103.attention.backward", 0.50, "attention on Blackwell Ultra").given(
        "assumed: twice the exponents of Blackwell"
    ),
    _ratio("power.exponent", 0.50, "clocks").fitted(
        "the same kernels on an H100 of 500 W; 1/3 where voltage follows the clock",
        *TITAN,
        estimator=STEPS,
    ),
    _ratio("power.sm_90", 700.0, "clocks").given("H100 SXM data sheet, W"),
)


def _table(parts: Iterable[Iterable[Constant]]) -> Mapping[str, Constant]:
    """The constants by id; one that is there twice is refused."""
    found: dict[str, Constant] = {}
    for one in (one for part in parts for one in part):
        if one.id in found:
            raise ValueError(f"two constants are called {one.id}")
        found[one.id] = one
    return found


TABLE = _table((LAUNCH, BLOCKS, INSIDE, NVLS, NETWORK, SLINGSHOT, TRANSPORTS, KERNELS))


def value(id: str) -> float:
    """The value of a constant, in SI units."""
    return TABLE[id].value
