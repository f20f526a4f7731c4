"""Channels, threads, parts and chunks of calls, with the worked examples of the fact sheet."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netsim.nccl.environment import NO_SETTINGS
from netsim.nccl.facts import Version
from netsim.nccl.schedules.plan import Work
from netsim.nccl.schedules.writing import chunk_table, segments
from netsim.nccl.split import (
    Loops,
    chunk_bytes,
    loops_of_part,
    shared_loops,
    shared_parts,
    slot_bytes,
    split_evenly,
    split_over_channels,
    steps_of,
)
from netsim.nccl.tuning import launch, most_threads
from tests.nccl.nccl_nodes import searched_communicator
from tests.nccl.nccl_plans import small_plan

KIB, MIB, GIB = 2**10, 2**20, 2**30

# system, nodes, bytes, algorithm, protocol: channels × threads, bytes of the parts, chunk
EXAMPLES = [
    (("h100_8nic", 1, KIB, "Ring", "LL"), (1, 96), [1024], 32 * KIB),
    (("h100_8nic", 1, 256 * KIB, "Ring", "LL"), (8, 512), [32768] * 8, 32 * KIB),
    (("h100_8nic", 1, MIB, "Ring", "LL"), (24, 512), [45056] * 23 + [12288], 32 * KIB),
    (("h100_8nic", 1, 2 * MIB, "NVLS", "Simple"), (16, 640), [131072] * 16, 16 * KIB),
    (("h100_8nic", 1, 32 * MIB, "NVLS", "Simple"), (16, 640), [2 * MIB] * 16, 32 * KIB),
    (("h100_8nic", 1, GIB, "NVLS", "Simple"), (16, 640), [64 * MIB] * 16, 128 * KIB),
    (("a100_8nic", 1, 4 * MIB, "Ring", "LL128"), (24, 640), [180224] * 23 + [49152], 576000),
    (("a100_8nic", 1, GIB, "Ring", "Simple"), (24, 544), [44744704] * 23 + [44613632], 2 * MIB),
    (("dgxa100", 4, 256 * KIB, "Tree", "LL128"), (16, 640), [16384] * 16, 17280),
    (("dgxa100", 4, 8 * MIB, "Tree", "LL128"), (16, 640), [524288] * 16, 34560),
]


@pytest.mark.parametrize(("call", "blocks", "parts", "chunk"), EXAMPLES)
def test_worked_examples(call, blocks, parts, chunk):
    config, nodes, nbytes, algorithm, protocol = call
    comm = searched_communicator(config, nodes)
    found = launch(comm, nbytes, algorithm, protocol)
    assert (found.n_channels, found.n_threads) == blocks
    counts = split_over_channels(
        "AllReduce", protocol, nbytes // 4, 4, found.n_channels, comm.n_ranks
    )
    assert [count * 4 for count in counts] == parts
    steps = {chunk_bytes(comm, "AllReduce", algorithm, protocol, size) for size in parts[:1]}
    assert steps == {chunk}


@pytest.mark.parametrize(
    ("protocol", "buffer", "chunk"),  # data of a slot: a half of LL, 15/16 of LL128, all of Simple
    [("LL", 65664, 4096), ("LL", 65792, 4112), ("LL128", 34816, 3840), ("Simple", 10240, 1024)],
)
def test_chunks_are_whole_grains_whatever_buffers_are_asked_for(protocol, buffer, chunk) -> None:
    comm = searched_communicator("h100_8nic", 1)
    few = replace(comm, settings=replace(NO_SETTINGS, buffer_bytes={protocol: buffer}))
    assert slot_bytes(protocol, few.settings) >= chunk
    assert chunk_bytes(few, "AllReduce", "Tree", protocol, GIB) == chunk


@pytest.mark.slow
@given(
    count=st.integers(1, 2**22),
    channels=st.integers(1, 64),
    ranks=st.integers(2, 512),
    function=st.sampled_from(["AllReduce", "AllGather", "ReduceScatter", "Broadcast"]),
    protocol=st.sampled_from(["LL", "LL128", "Simple"]),
    element=st.sampled_from([1, 2, 4, 8]),
)
def test_parts_cover_every_element_once(count, channels, ranks, function, protocol, element):
    counts = split_over_channels(function, protocol, count, element, channels, ranks)
    assert sum(counts) == count
    assert min(counts) > 0
    assert len(counts) <= channels


def test_loops_of_a_part():
    assert loops_of_part(1024, 32768, spread=8).chunks == [128]
    assert loops_of_part(5 * MIB, 512 * KIB, spread=4) == Loops(512 * KIB, 2, 256 * KIB)
    assert loops_of_part(300, 128).chunks == [128, 128, 48]
    assert loops_of_part(0, 128).chunks == []


def test_loops_before_2_22_share_every_loop_among_all_channels():
    loops = shared_loops(64 * MIB, 2 * MIB, 2, 512, "Simple", spread=8)
    assert loops == Loops(2 * MIB, 2, 0)
    short = shared_loops(100_000, 2 * MIB, 2, 512, "Simple", spread=8)
    assert short == Loops(2 * MIB, 0, 7680)
    assert shared_loops(4096, 32768, 1, 96, "LL", spread=8).chunks == [768]


@pytest.mark.slow
@given(
    nbytes=st.integers(0, 2**27),
    chunk=st.integers(512, 2**22),
    channels=st.integers(1, 32),
    spread=st.sampled_from([1, 3, 8]),
)
def test_loops_are_those_of_walking_through_the_buffer(nbytes, chunk, channels, spread):
    alignment, offset, walked = 16, 0, []
    while offset < nbytes and len(walked) < 1000:
        left = nbytes - offset
        fair = -(-left // (spread * alignment)) * alignment
        walked.append(chunk if left >= spread * chunk else min(chunk, fair))
        offset += spread * walked[-1]
    assert loops_of_part(nbytes, chunk, spread=spread).chunks[:1000] == walked

    offset, walked, parts = 0, [], [0] * channels
    while offset < nbytes and len(walked) < 1000:
        fair = -(-(nbytes - offset) // (channels * spread * 480 * 8)) * 480 * 8
        walked.append(min(chunk, fair))
        for channel in range(channels):
            step = spread * walked[-1]
            parts[channel] += min(step, max(0, nbytes - offset - channel * step))
        offset += channels * spread * walked[-1]
    loops = shared_loops(nbytes, chunk, channels, 512, "Simple", spread=spread)
    assert loops.chunks[:1000] == walked
    if offset >= nbytes:
        assert list(shared_parts(loops, nbytes, channels, spread=spread)) == parts


@pytest.mark.parametrize("nbytes", [4, 100_000, 64 * MIB, 70 * MIB + 4])
@pytest.mark.parametrize(("channels", "spread"), [(1, 1), (3, 1), (2, 8), (24, 8)])
def test_what_channels_have_of_shared_loops_is_everything(nbytes, channels, spread):
    loops = shared_loops(nbytes, 2 * MIB, channels, 544, "Simple", spread=spread)
    parts = shared_parts(loops, nbytes, channels, spread=spread)
    assert sum(parts) == nbytes
    assert list(parts) == sorted(parts, reverse=True)
    # Full channels make chunks of the loops' own sizes again.
    if parts[0] == sum(spread * chunk for chunk in loops.chunks):
        assert loops_of_part(parts[0], 2 * MIB, spread=spread).chunks == loops.chunks


@pytest.mark.slow
@example(lines=961, channels=1, ranks=2, protocol="LL")
@given(
    lines=st.integers(1, 20_000),
    channels=st.integers(1, 5),
    ranks=st.integers(2, 9),
    protocol=st.sampled_from(["LL", "LL128"]),
)
def test_rings_before_2_22_take_chunks_in_turn_and_leave_the_last_ones_empty(
    lines, channels, ranks, protocol
):
    """As the loops of runRing cut a buffer: chunk r of channel c is the (r x channels + c)-th."""
    threads, nbytes = 96, 16 * lines
    chunk, least = {"LL": (8192, threads * 8), "LL128": (28800, threads * 30)}[protocol]
    slots, offset, sizes = channels * ranks, 0, []
    parts: list[list[int]] = [[] for _ in range(channels)]
    while offset < nbytes:
        size = min(chunk, -(-(nbytes - offset) // (slots * least)) * least)
        sizes.append(size)
        for channel, mine in enumerate(parts):
            begins = [offset + (r * channels + channel) * size for r in range(ranks)]
            mine += [min(size, max(0, nbytes - begin)) for begin in begins]
        offset += slots * size
    loops = shared_loops(nbytes, chunk, channels, threads, protocol, spread=ranks)
    assert loops.chunks == sizes
    found = shared_parts(loops, nbytes, channels, spread=ranks, in_turn=True)
    assert found == tuple(map(sum, parts))
    for own, mine in zip(found, parts, strict=True):
        table = chunk_table(Work(0, 0, own // 4, chunk, loops.last), 4, ranks)[1]
        assert [4 * count for count in table.ravel()] == mine[: table.size]
        assert not any(mine[table.size :])


def test_collnet_uses_all_channels_alike():
    assert split_evenly(1000, 3) == [336, 336, 328]
    assert split_evenly(16, 3) == [16, 0, 0]


def test_slots():
    assert [slot_bytes(p, NO_SETTINGS) for p in ("LL", "LL128", "Simple")] == [
        32768,
        576000,
        524288,
    ]


def test_pat_chunks_shrink_with_the_share():
    comm = searched_communicator("h100_1nic", 2)
    assert chunk_bytes(comm, "AllGather", "PAT", "Simple", 64 * MIB) == 512 * KIB
    assert chunk_bytes(comm, "AllGather", "PAT", "Simple", 4 * MIB) == 128 * KIB
    assert chunk_bytes(comm, "ReduceScatter", "PAT", "Simple", 4 * MIB) == 256 * KIB
    assert chunk_bytes(comm, "AllGather", "PAT", "Simple", 64) == 64 * KIB


def test_chunks_of_nvls_trees_and_collnet():
    comm = searched_communicator("h100_8nic", 4)
    sizes = (64 * MIB, MIB, 64 * KIB)
    found = [chunk_bytes(comm, "AllReduce", "NVLSTree", "Simple", size) for size in sizes]
    assert found == [64 * KIB, 64 * KIB, 32 * KIB]
    two = searched_communicator("h100_8nic", 2)
    assert chunk_bytes(two, "AllReduce", "NVLSTree", "Simple", GIB) == 128 * KIB
    found = [
        chunk_bytes(comm, "AllReduce", "CollNetChain", "Simple", size, n_channels=16)
        for size in (16 * GIB, 64 * MIB, MIB)
    ]
    assert found == [256 * KIB, 64 * KIB, 32 * KIB]
    found = [
        chunk_bytes(comm, "AllReduce", "CollNetDirect", "Simple", size, n_channels=16)
        for size in (16 * GIB, 64 * MIB, MIB)
    ]
    assert found == [512 * KIB, 32 * KIB, 32 * KIB]


def test_chunks_of_nvls_trees_change_at_the_edges_of_the_rules():
    two = searched_communicator("h100_8nic", 2)  # 8 heads, chunks of up to 128 KiB
    assert two.n_heads == 8
    edges = {4 * MIB: (64 * KIB, 128 * KIB), 512 * KIB: (32 * KIB, 64 * KIB)}
    for edge, (below, above) in edges.items():
        found = [chunk_bytes(two, "AllReduce", "NVLSTree", "Simple", edge - k) for k in (1, 0)]
        assert found == [below, above]


def test_chunks_of_nvls_change_at_the_edges_of_the_rules_with_a_single_head():
    for nodes, algorithm, edges in (
        (1, "NVLS", {8 * MIB: (64 * KIB, 128 * KIB), 512 * KIB: (32 * KIB, 64 * KIB)}),
        (2, "NVLSTree", {512 * KIB: (64 * KIB, 128 * KIB), 64 * KIB: (32 * KIB, 64 * KIB)}),
    ):
        one = replace(searched_communicator("h100_8nic", nodes), n_heads=1)
        for edge, expected in edges.items():
            found = [chunk_bytes(one, "AllReduce", algorithm, "Simple", edge - k) for k in (1, 0)]
            assert tuple(found) == expected


def test_pat_keeps_the_chunk_with_which_all_blocks_just_fit():
    comm = searched_communicator("h100_1nic", 2)
    for function, blocks in (("AllGather", 32), ("ReduceScatter", 16)):
        for chunk in (512 * KIB, 256 * KIB, 128 * KIB):
            size = blocks * chunk
            assert chunk_bytes(comm, function, "PAT", "Simple", size) == chunk
            assert chunk_bytes(comm, function, "PAT", "Simple", size - 1) == chunk // 2


@pytest.mark.parametrize("element", [1, 4])
@pytest.mark.parametrize(
    ("size", "slices"),
    [
        (2 * MIB, [MIB, MIB]),
        (100 * KIB, [50 * KIB, 50 * KIB]),
        (63 * KIB, [32 * KIB, 31 * KIB]),
        (48 * KIB, [32 * KIB, 16 * KIB]),
        (32 * KIB, [32 * KIB]),
    ],
)
def test_slices_are_halves_but_no_less_than_a_32nd_of_two_slots(element, size, slices):
    count, steps = size // element, steps_of("AllReduce", "Ring", "Simple")
    plan = small_plan("Ring", "Simple", 1, 2, count, slot_bytes=512 * KIB)
    chunks = np.zeros((1, 1), np.int64), np.full((1, 1), count)
    cut = segments(plan, element, chunks, steps=steps)
    assert (cut.count[0, : cut.subs] * element).tolist() == slices


def test_trees_shrank_their_chunks_with_depth_before_2_22():
    new = searched_communicator("dgxa100", 4)
    old = replace(new, version=Version(2, 19))
    call = ("AllReduce", "Tree", "Simple", 64 * MIB)
    assert chunk_bytes(new, *call) == 512 * KIB
    assert chunk_bytes(old, *call, n_channels=16) == 64 * KIB


def test_collnet_gives_up_channels_in_bands():
    comm = searched_communicator("h100_8nic", 4)
    counts = [
        launch(comm, size, "CollNetDirect", "Simple").n_channels
        for size in (GIB, 16 * MIB, 4 * MIB, 64 * KIB)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == comm.n_channels
    assert counts[-1] == 1


@pytest.mark.parametrize(
    ("algorithm", "protocol", "least"),  # NCCL_*_THREAD_THRESHOLD; rings of LL: by rank
    [("Ring", "LL", 8 * 16), ("Tree", "LL", 8), ("Ring", "LL128", 8), ("Tree", "Simple", 64)],
)
def test_a_channel_comes_with_the_bytes_that_its_threads_are_worth(algorithm, protocol, least):
    comm = searched_communicator("h100_8nic", 2)
    threads = most_threads(comm, algorithm, protocol)
    for channels in (2, 3):
        enough = channels * threads * least
        assert launch(comm, enough, algorithm, protocol).n_channels == channels
        assert launch(comm, enough - 1, algorithm, protocol).n_channels == channels - 1


def test_slow_rings_run_half_the_threads():
    comm = searched_communicator("v100pcie4sw", 1)
    assert launch(comm, GIB, "Ring", "Simple").n_threads == 256 + 32
    assert launch(comm, GIB, "Ring", "LL").n_threads == 512


def test_a_tuner_may_want_as_few_channels_as_one() -> None:
    comm = searched_communicator("h100_8nic", 2)
    usual = launch(comm, GIB, "Ring", "Simple").n_channels
    found = [launch(comm, GIB, "Ring", "Simple", n).n_channels for n in (-1, 0, 1, 2, 99)]
    assert found == [usual, usual, 1, 2, comm.n_channels]


@pytest.mark.parametrize("function", ["AllReduce", "AllGather", "ReduceScatter", "Broadcast"])
@pytest.mark.parametrize("protocol", ["LL", "LL128", "Simple"])
def test_parts_are_no_more_than_channels_and_lose_nothing(function: str, protocol: str) -> None:
    """For any size: nothing is lost, no part is empty, and those between the ends are equal."""
    for channels in (1, 2, 3, 8, 24):
        for count in (1, 1000, 8191, 8192, 8193, 70_001, 10**6, 3 * 10**7 + 5):
            parts = split_over_channels(function, protocol, count, 4, channels, 8)
            assert sum(parts) == count
            assert len(parts) <= channels
            assert min(parts) > 0
            assert len(set(parts[1:-1])) <= 1


def test_nvls_has_its_own_channels_on_a_node_and_shares_those_of_others_between_nodes() -> None:
    """Only NVLS over a network is held to the channels of rings; NVLSTree is not."""
    for nodes in (1, 2):
        comm = replace(searched_communicator("h100_8nic", nodes), n_channels=3, nvls_channels=9)
        assert launch(comm, 2**26, "NVLS", "Simple").n_channels == (9 if nodes == 1 else 3)
        assert launch(comm, 2**26, "NVLSTree", "Simple").n_channels == 9
        assert launch(comm, 2**26, "NVLSTree", "Simple", 20).n_channels == 9
        assert launch(comm, 2**26, "Ring", "Simple", 20).n_channels == 3
        assert launch(comm, 2**26, "Ring", "Simple", 0).n_channels == 3


@pytest.mark.parametrize("channels", [1, 4, 16])
def test_chunks_of_collnet_direct_are_halved_by_the_bytes_of_each_head_of_a_channel(
    channels: int,
) -> None:
    """As in NCCL's `src/enqueue.cc, calcCollChunking`: 64 and 8 chunks a step of the tree."""
    comm = searched_communicator("h100_8nic", 2)
    depth = 2
    whole = chunk_bytes(comm, "AllReduce", "CollNetDirect", "Simple", 2**50)
    for size in (3 << power for power in range(14, 36)):
        chunk = whole
        for least_chunks, floor in ((64, 131072), (8, 65536), (8, 32768)):
            of_head = channels * comm.n_heads
            while chunk > floor and size // (of_head * chunk) < depth * least_chunks:
                chunk //= 2
        found = chunk_bytes(comm, "AllReduce", "CollNetDirect", "Simple", size, n_channels=channels)
        assert found == chunk, size
