"""Traces as torch.profiler writes them: every way in which calls of NCCL's are described."""

import gzip
import json
from pathlib import Path

import pytest

from netsim.base.errors import InputError
from netsim.training.recorded.kineto import (
    ProfiledCall,
    ProfiledJob,
    groups_of,
    is_trace,
    read_profile,
    step_of,
    tape_of,
)
from tests.training.profiler import AUTOGRAD, NAME, Recording, said, steps_of_data_parallelism

JOB = ProfiledJob(2, 8, {"7": (2, 6)})


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("allreduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("all_gather_single", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_allv", "alltoall"),
        ("all_to_all_v_single", "alltoall"),
        ("broadcast", "broadcast"),
        ("_broadcast_oop", "broadcast"),
        ("_reduce_oop", "reduce"),
    ],
)
def test_collectives_are_known_by_every_name_that_versions_give_them(name, collective) -> None:
    found = JOB.description_of_call(said(name))
    assert found is not None
    assert (found.collective, found.nbytes) == (collective, 2**21)


@pytest.mark.parametrize("name", ["wait", "init", "sendmsg", "recursive", "", "coalesced"])
def test_what_moves_nothing_is_no_call(name: str) -> None:
    assert JOB.description_of_call(said(name)) is None


@pytest.mark.parametrize(
    ("more", "ranks"),
    [
        ({"Process Group Ranks": "[1, 3, 5]", "Group size": 3}, (1, 3, 5)),
        ({"Process Group Ranks": [1, 3, 5], "Group size": 3}, (1, 3, 5)),
        ({"Process Group Ranks": "[]", "Process Group Name": "7"}, (2, 6)),
        ({"Process Group Ranks": "[]"}, tuple(range(8))),
        ({"Process Group Ranks": "[0, 2, 4, ..., 14]", "Group size": 8}, tuple(range(0, 16, 2))),
        ({"Process Group Ranks": "[0, 1, 8, ..., 25]", "Group size": 8}, None),
        ({"Process Group Ranks": "[0, 1, 2, ..., 99]", "Group size": 8}, None),
        (
            {
                "Process Group Ranks": "[0, 1, ..., 9]",
                "Group size": 4,
                "Global rank start": 0,
                "Global rank stride": 3,
            },
            (0, 3, 6, 9),
        ),
    ],
)
def test_groups_are_those_that_are_listed_cut_short_or_in_the_header(more, ranks) -> None:
    found = JOB.description_of_call(said(**more))
    assert (None if found is None else found.ranks) == ranks


MANY = 2**40


@pytest.mark.parametrize(
    ("more", "world", "words"),
    [
        ({"Process Group Ranks": "[]", "Group size": MANY}, 8, "'Group size': expected at most"),
        ({"Process Group Ranks": "[0, 1, ..., 9]", "Group size": MANY}, 8, "expected at most"),
        ({"Process Group Ranks": f"[0, {MANY}]", "Group size": 2}, None, f"got {MANY + 1}"),
        ({}, MANY, f"the job: expected at most 1048576 ranks, got {MANY}"),
    ],
)
def test_more_ranks_than_any_job_has_are_refused(tmp_path, more, world, words: str) -> None:
    made = Recording(rank=0, world=world)
    made.kernel(0, 5, name=NAME, **said(**more))
    with pytest.raises(InputError, match=r"t\.json: ") as refused:
        read_profile(made.write(tmp_path / "t.json"))
    assert words in str(refused.value)


def test_sends_and_receives_have_a_source_and_a_destination() -> None:
    sent = JOB.description_of_call(said("send", **{"Dst Rank": 6, "Rank": 3}))
    received = JOB.description_of_call(said("recv", **{"Src Rank": "0"}))
    of_two = JOB.description_of_call(said("send", **{"Process Group Ranks": "[2, 6]"}))
    assert sent is not None
    assert received is not None
    assert of_two is not None
    assert [one.ranks for one in (sent, received, of_two)] == [(2, 6), (0, 2), (2, 6)]
    assert JOB.description_of_call(said("send")) is None


def test_a_call_of_nothing_is_none() -> None:
    assert JOB.description_of_call(said(elements=0)) is None


def test_parts_of_different_size_count_what_is_larger() -> None:
    splits = {"In split size": "[4, 4, 0, 8]", "Out split size": "[1, 1, 1, 40]"}
    sizes = {"In msg nelems": 16, "Out msg nelems": 43}
    found = JOB.description_of_call(said("all_to_allv", **splits, **sizes))
    assert found is not None
    assert (found.nbytes, found.uneven) == (86, True)
    even = JOB.description_of_call(said("all_to_all", **{"In split size": "[2, 2]", **sizes}))
    assert even is not None
    assert (even.nbytes, even.uneven) == (32, False)
    cut_list = {"In split size": "[4, 4, 0, ..., 8]", **sizes}
    cut = JOB.description_of_call(said("all_to_allv", **cut_list))
    assert cut is not None
    assert (cut.nbytes, cut.uneven) == (86, True)


def test_gathers_count_all_parts() -> None:
    gathered = JOB.description_of_call(said("gather", 16, **{"Out msg nelems": 0}))
    scattered = JOB.description_of_call(said("scatter", 0, **{"Out msg nelems": 16}))
    assert gathered is not None
    assert scattered is not None
    assert (gathered.nbytes, scattered.nbytes) == (256, 256)


def _calls(made: Recording, path: Path) -> tuple[ProfiledCall, ...]:
    return read_profile(made.write(path / "t.json")).calls


def test_kernels_without_a_description_have_that_of_their_operator(tmp_path) -> None:
    made = Recording()
    operator = made.record(0, said("_allgather_base", 2**10))
    made.kernel(10, 5, name="ncclDevKernel_Generic(ncclDevComm*, void*)", operator=operator)
    (call,) = _calls(made, tmp_path)
    assert (call.description.collective, call.description.nbytes) == ("all_gather", 2**11)


def test_coalesced_sends_and_receives_are_one_kernel(tmp_path) -> None:
    """batch_isend_irecv: two operators, then one launch that names neither."""
    made = Recording(rank=2)
    made.record(0, said("wait"))
    made.record(1, said("send", **{"Dst Rank": 4}))
    made.record(2, said("recv", **{"Src Rank": 0}))
    made.kernel(20, 30, launched=5, name="ncclDevKernel_SendRecv(ncclDevKernelArgsStorage)")
    made.record(30, said("send", **{"Dst Rank": 0}))
    made.kernel(60, 30, launched=35, name="ncclDevKernel_SendRecv(ncclDevKernelArgsStorage)")
    calls = _calls(made, tmp_path)
    assert [(call.description.ranks, call.part) for call in calls] == [
        ((2, 4), 0),
        ((0, 2), 1),
        ((2, 0), 0),
    ]
    assert [call.end - call.begin for call in calls] == pytest.approx([30e-6] * 3)
    tape = tape_of(read_profile(tmp_path / "t.json"))
    sent = [task for task in tape.entries if task.collective]
    assert [task.groups.tolist() for task in sent] == [
        [[0, 2], [1, 3], [4, 6], [5, 7]],
        [[0, 2], [1, 3], [4, 6], [5, 7]],
        [[2, 0], [3, 1], [6, 4], [7, 5]],
    ]
    assert sent[0].stream != sent[1].stream
    (gap,) = (task for task in tape.entries if not task.collective)  # 10 us between the kernels
    assert gap.seconds == pytest.approx(10e-6)
    assert set(gap.after) == {0, 1}
    assert sent[2].after == (2,)


def test_another_thread_s_operators_are_not_taken(tmp_path) -> None:
    made = Recording(rank=2)
    made.record(0, said("send", **{"Dst Rank": 4}), thread=AUTOGRAD)
    made.kernel(10, 5, launched=5, name="ncclDevKernel_SendRecv")
    made.kernel(20, 5, name=NAME, **said())
    profile = read_profile(made.write(tmp_path / "t.json"))
    assert (len(profile.calls), profile.unsized) == (1, 1)


def test_a_call_of_several_kernels_is_one(tmp_path) -> None:
    made = Recording()
    for at in (0, 40):
        made.kernel(at, 30, name="ncclDevKernel_SendRecv", operator=77, **said("all_to_all"))
    (call,) = _calls(made, tmp_path)
    assert call.end - call.begin == pytest.approx(70e-6)


def test_steps_are_told_apart_by_when_kernels_were_launched(tmp_path) -> None:
    made = Recording()
    made.step(3, 0, 100)
    made.step(4, 100, 100)
    made.kernel(20, 10)
    made.kernel(120, 30, launched=99, name=NAME, stream=20, **said())  # runs in the next step
    made.kernel(150, 10, launched=130)
    made.kernel(250, 30, launched=180, name=NAME, stream=20, **said())
    made.kernel(300, 10, launched=250)  # behind the last step
    profile = read_profile(made.write(tmp_path / "t.json"))
    assert profile.steps == (3, 4)
    assert [(kernel.step) for kernel in profile.kernels] == [3, 4, -1]
    assert [call.step for call in profile.calls] == [3, 4]
    assert profile.of_step(3).seconds == pytest.approx(130e-6)


def test_the_step_of_median_length_is_taken_or_the_one_asked_for(tmp_path) -> None:
    path = steps_of_data_parallelism(900, 500, 600).write(tmp_path / "t.json")
    profile = read_profile(path)
    chosen, notes = step_of(profile, None)
    assert notes == ("step 5 of the trace's 3 to 5",)
    assert chosen.seconds == pytest.approx(595e-6)
    assert step_of(profile, 3)[0].seconds == pytest.approx(895e-6)
    with pytest.raises(InputError, match="the trace has no step 9; it has 3 to 5"):
        step_of(profile, 9)


def test_times_keep_their_nanoseconds_however_long_the_clock_has_run(tmp_path) -> None:
    made = steps_of_data_parallelism(500)
    for event in made.events:
        event["ts"] += 1.7e15 - 4386379669145.25  # microseconds since 1970
    profile = read_profile(made.write(tmp_path / "t.json"))
    assert profile.kernels[0].end == pytest.approx(profile.kernels[1].begin, abs=1e-9)


def test_the_header_tells_the_machine(tmp_path) -> None:
    profile = read_profile(steps_of_data_parallelism(500).write(tmp_path / "t.json"))
    assert (profile.rank, profile.world) == (0, 8)
    assert (profile.gpu, profile.nccl) == ("NVIDIA H100 80GB HBM3", "2.27.5")


def test_a_rank_that_only_the_kernels_name_is_that_of_the_profile(tmp_path) -> None:
    made = Recording(rank=None, world=8)
    made.kernel(0, 5, name=NAME, **said("allreduce", Rank=5))
    assert read_profile(made.write(tmp_path / "t.json")).rank == 5


def test_pairs_of_ranks_that_do_not_divide_the_world_stay_alone(tmp_path) -> None:
    made = Recording(rank=0, world=6)
    made.kernel(0, 5, name="ncclDevKernel_SendRecv", **said("send", **{"Dst Rank": 4}))
    (call,) = _calls(made, tmp_path)
    assert groups_of((True, call.description.ranks), 6).tolist() == [[0, 4]]


@pytest.mark.parametrize("packed", [1, 2])
def test_packed_traces_are_read(tmp_path, packed: int) -> None:
    content = json.dumps(steps_of_data_parallelism(500).data()).encode()
    for _ in range(packed):
        content = gzip.compress(content)
    path = tmp_path / "t.json.gz"
    path.write_bytes(content)
    assert len(read_profile(path).calls) == 1
    plain = path.rename(tmp_path / "t.gz")
    assert is_trace(plain) == (packed == 1)  # by what is in it, not by its name


def test_every_cut_is_told_as_one(tmp_path) -> None:
    whole = json.dumps(steps_of_data_parallelism(500).data()).encode()
    path = tmp_path / "t.json"
    for length in range(10, len(whole) - 1, 97):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="ends in the middle"):
            read_profile(path)


def test_other_packings_are_named(tmp_path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"PK\x03\x04" + bytes(40))
    with pytest.raises(InputError, match="is packed by zip"):
        read_profile(path)
