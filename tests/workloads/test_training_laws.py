"""Laws of steps: pipeline bubbles, DDP's overlap, stragglers, and the schedules behind them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.schedule.schedule import Style, Use
from netsim.topology.faults import with_slow_gpus
from netsim.topology.routing import switch
from netsim.workloads.kernels import LinearLayer, Shapes, forward
from netsim.workloads.lower import Coarse, Lowered, lower
from netsim.workloads.model import Layer, LayerList, Plain, Tensor, layers_of
from netsim.workloads.passes import PassTable
from netsim.workloads.setting import ExtraCollective, Setting
from netsim.workloads.step import SCHEDULES, in_flight, training_step
from netsim.workloads.tape import Tape, TapeEntry
from tests.training.steps import H100, SMALL, setting

FORWARD, BACKWARD = 1.0, 2.0


def layers(count: int, parameters: int = 0) -> LayerList:
    """Plain layers of known times."""
    tensors = (Tensor("weights", parameters),) if parameters else ()
    plain = Plain(forward=FORWARD, backward=BACKWARD, output=1.0)
    names = [f"layer {k}" for k in range(count)]
    return LayerList(name="l", layers=tuple(Layer(n, "plain", tensors, plain=plain) for n in names))


def run(
    s: Setting, seconds: float = 0.0, slow: Mapping[int, float] | None = None
) -> tuple[Tape, Lowered, np.ndarray, np.ndarray]:
    """A step whose collectives take a fixed time a byte (or next to none), and no optimizer."""
    tape = training_step(s)
    world = s.grid.size

    def realise(task: TapeEntry, group: tuple[int, ...]) -> Coarse:
        time = max(seconds * task.nbytes, 1e-9)
        style = Style(cap=task.nbytes / time)
        one = np.zeros(1, np.int32)
        return Coarse(time, (style,), one, one + 1, np.array([task.nbytes], np.int64))

    lowered = lower(tape, world, realise)
    topology = with_slow_gpus(switch(world, float("inf")), slow or {})
    timeline = simulate(place(lowered.schedule, topology), "simpy")
    return tape, lowered, timeline.start, timeline.end


def step_time(tape: Tape, lowered: Lowered, end: np.ndarray) -> float:
    """The end of the last pass."""
    passes = [k for k, task in enumerate(tape.entries) if task.phase != "step"]
    return max(float(end[lowered.end[k]].max()) for k in passes)


@pytest.mark.slow
@pytest.mark.parametrize(("p", "m"), [(2, 2), (2, 8), (4, 4), (4, 12), (8, 8)])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_bubble_is_p_minus_1_over_m(name: str, p: int, m: int) -> None:
    s = setting(pp=p, model=layers(p), batch=m, schedule=name, blocking_sends=False)
    tape, lowered, _, end = run(s)
    ideal = m * (FORWARD + BACKWARD)
    assert step_time(tape, lowered, end) / ideal - 1 == pytest.approx((p - 1) / m, rel=1e-6)


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 4, 2), (4, 8, 2), (4, 8, 4), (2, 6, 3)])
def test_interleaving_divides_the_bubble_by_its_chunks(p: int, m: int, v: int) -> None:
    s = setting(
        pp=p, chunks=v, model=layers(p * v), batch=m, schedule="interleaved", blocking_sends=False
    )
    tape, lowered, _, end = run(s)
    ideal = m * v * (FORWARD + BACKWARD)
    assert step_time(tape, lowered, end) / ideal - 1 == pytest.approx((p - 1) / (v * m), rel=1e-6)


SENDING = 0.25  # seconds


def first_stage(blocking: bool | None) -> tuple[list[float], list[float], float]:
    """When forward and backward passes of the first of two stages begin, and when all is over."""
    s = setting(
        pp=2, chunks=2, model=layers(4), batch=8, schedule="interleaved", blocking_sends=blocking
    )
    tape, lowered, start, end = run(s, seconds=SENDING)
    begun: dict[str, list[float]] = {"forward": [], "backward": []}
    for number, task in enumerate(tape.entries):
        if not task.collective and task.phase in begun and task.groups[0, 0] == 0:
            begun[task.phase].append(float(start[lowered.end[number]].min()))
    return begun["forward"], begun["backward"], step_time(tape, lowered, end)


def test_interleaved_sends_hold_up_passes_of_their_own_direction() -> None:
    (free, _, least), (own, back, mine), (held, _, most) = map(first_stage, (False, None, True))
    assert free[1] == pytest.approx(FORWARD)
    assert own[1] == held[1] == pytest.approx(FORWARD + SENDING)  # as the pipeline fills
    assert own[7] - own[6] == pytest.approx(FORWARD + BACKWARD)  # in turn: hidden by the other
    assert held[7] - held[6] > FORWARD + BACKWARD + SENDING / 2
    assert back[-1] - back[-2] == pytest.approx(BACKWARD + SENDING)  # as it empties
    assert least <= mine < most


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 12)])
def test_zero_bubble_takes_weight_gradients_out_of_the_bubble(p: int, m: int) -> None:
    s = setting(pp=p, model=layers(p), batch=m, schedule="zb-h1", blocking_sends=False)
    tape, lowered, _, end = run(s)
    inputs = weights = BACKWARD / 2
    bubble = (p - 1) * (FORWARD + inputs - weights)
    found = step_time(tape, lowered, end) - m * (FORWARD + BACKWARD)
    assert found == pytest.approx(bubble, abs=1e-5)


@pytest.mark.parametrize("k", [2, 4, 8])
def test_naive_model_parallelism_leaves_all_but_one_idle(k: int) -> None:
    s = setting(pp=k, model=layers(k), batch=3, schedule="naive")
    tape, lowered, _, end = run(s)
    busy = 3 * (FORWARD + BACKWARD)
    assert 1 - busy / step_time(tape, lowered, end) == pytest.approx((k - 1) / k, rel=1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("p", "m"), [(1, 3), (2, 2), (4, 8), (4, 3)])
def test_every_schedule_does_every_pass_once(name: str, p: int, m: int) -> None:
    chunks = 2 if name == "interleaved" else 1
    if chunks > 1 and m % p:
        pytest.skip("refused")
    for stage in range(p):
        actions = SCHEDULES[name](stage, p, m, chunks)
        for kind in "FB":
            found = sorted((a.micro_batch, a.chunk) for a in actions if a.kind == kind)
            assert found == [(k, c) for k in range(m) for c in range(chunks)]
    if name in ("1f1b", "zb-h1"):
        assert in_flight(SCHEDULES["1f1b"](0, p, m, 1)) == min(m, p)
    if name == "gpipe":
        assert in_flight(SCHEDULES[name](0, p, m, 1)) == m


@pytest.mark.parametrize("bucket", [4_000, 20_000, 10_000_000])
@pytest.mark.parametrize("rate", [1e-5, 1e-4, 1e-3])
def test_ddp_ends_when_its_recurrence_says(bucket: int, rate: float) -> None:
    """start(i) = max(ready(i), end(i - 1)); the step ends with the last bucket."""
    count, parameters = 6, 1000
    s = setting(
        dp=2,
        model=layers(count, parameters),
        batch=2,
        bucket=bucket,
        first_bucket=bucket,
        gradient_dtype="float",
    )
    tape, lowered, _, end = run(s, rate)
    nbytes, ready, expected = parameters * 4, count * FORWARD, 0.0
    filled = 0
    for number in range(count):
        ready += BACKWARD
        filled += nbytes
        if filled >= bucket or number == count - 1:
            expected = max(ready, expected) + filled * rate
            filled = 0
    copied = count * 5e-6  # at most: a kernel copies each gradient
    assert step_time(tape, lowered, end) == pytest.approx(max(expected, ready), abs=copied)


def test_delayed_gradients_cost_the_longer_of_both() -> None:
    s = setting(dp=2, model=layers(4, 1000), batch=2, delayed=True, gradient_dtype="float")
    for rate in (1e-5, 1e-2):
        tape, lowered, _, end = run(s, rate)
        longer = max(4 * (FORWARD + BACKWARD), 4 * 1000 * 4 * rate)
        assert step_time(tape, lowered, end) == pytest.approx(longer, rel=1e-6)


@pytest.mark.parametrize("data", ["ddp", "allreduce", "parameter-server", "zero1", "fsdp"])
def test_a_synchronous_step_is_as_slow_as_its_slowest_gpu(data: str) -> None:
    s = setting(dp=4, model=layers(4, 1000), batch=4, data=data)
    times = [step_time(*(found := run(s, 0.0, slow))[:2], found[3]) for slow in (None, {2: 1.5})]
    assert times[1] == pytest.approx(1.5 * times[0], rel=1e-3)


def test_accumulation_communicates_once_without_sync_and_each_time_with() -> None:
    s = setting(dp=2, model=layers(4, 1000), batch=2 * 4)
    calls = {
        flag: sum(task.kind == "dp" for task in training_step(replace(s, no_sync=flag)).entries)
        for flag in (True, False)
    }
    assert calls[False] == 4 * calls[True]


def test_extras_run_at_their_moment() -> None:
    whens = ("forward", "backward", "step", "eval")
    extras = tuple(ExtraCollective(when, "all_reduce", ("dp",), 64, when) for when in whens)
    tape = training_step(setting(dp=2, model=layers(2, 1000), batch=2, extras=extras))
    extra = [k for k, task in enumerate(tape.entries) if task.kind == "extra"]
    assert [tape.entries[k].name for k in extra] == list(whens)
    place = dict(zip(whens, extra, strict=True))
    place["optimizer"] = next(k for k, t in enumerate(tape.entries) if t.name == "optimizer")
    first = next(k for k, task in enumerate(tape.entries) if not task.collective)
    assert tape.entries[first].after == (place["forward"],)  # the pass waits for its input
    assert place["step"] in tape.entries[place["optimizer"]].after
    assert place["optimizer"] < place["eval"]


@pytest.mark.parametrize("keep", [0.01, 0.1])
def test_compression_moves_fewer_bytes(keep: float) -> None:
    model = layers(2, 100_000)
    s = setting(dp=4, model=model, batch=4, gradient_dtype="float", bucket=1, first_bucket=1)

    def moved(**given: object) -> list[tuple[str, int]]:
        tasks = training_step(replace(s, **given)).entries  # type: ignore[arg-type]
        return [(task.collective, task.nbytes) for task in tasks if task.kind == "dp"]

    assert moved() == [("all_reduce", 400_000)] * 2
    assert moved(compression="bf16") == [("all_reduce", 200_000)] * 2
    assert moved(compression="fp8") == [("all_reduce", 100_000)] * 2
    kept = int(100_000 * keep) * 4 * 4  # of four ranks, four bytes each: values, then indices
    assert moved(compression="top-k", top_k=keep) == [("all_gather", kept)] * 4


def test_kernels_op_by_op_take_longer_where_norms_are_several() -> None:
    """A gated model has RMSNorm: more passes over the same bytes; LayerNorm is one kernel, which
    sums rows up and so takes longer than its bytes, though less than those of RMSNorm."""
    gpt = replace(SMALL, gated=False, biases=True)
    times = {
        (kind, model.gated): sum(
            task.seconds for task in training_step(setting(model=model, elementwise=kind)).entries
        )
        for kind in ("fused", "eager")
        for model in (SMALL, gpt)
    }
    more = {gated: times["eager", gated] - times["fused", gated] for gated in (True, False)}
    assert more[True] > 2 * more[False] > 0


def test_products_apart_add_up_gradients_of_their_input() -> None:
    """Queries, keys and values, a gate and its like: three sums of two tensors of all tokens."""
    found = {
        apart: PassTable(setting(model=SMALL, apart=apart)).of(layers_of(SMALL)[1])
        for apart in (False, True)
    }
    together, alone = (sum(part.seconds for part in one.backward) for one in found.values())
    s = setting(model=SMALL)
    moved = 9.0 * s.tokens * SMALL.hidden * s.element
    assert alone - together >= s.roofline.stream_seconds(moved, 3)
    shapes = Shapes(SMALL, setting(model=SMALL, apart=True))
    assert [one.outputs for one in shapes.mlp_in(SMALL.ffn)] == [SMALL.ffn] * 2
    assert len(shapes.attention_in) == 3


def test_what_only_moves_bytes_loses_nothing_to_channels() -> None:
    """Half of the SMs are held for all the time: products take twice as long, streams as ever."""
    channels = Style(cap=1.0, uses=(Use("sms", "src", 0.5),))
    one, tape = np.zeros(1, np.int32), Tape()
    held = Coarse(100.0, (channels,), one, one + 1, np.array([100], np.int64))
    ranks = np.arange(2, dtype=np.int32)
    tape.collective("held", "dp", "all_gather", ranks.reshape(1, 2), 100)
    for moving in (0.0, 1.0, 2.0):
        tape.compute("kernel", ranks[:1], 2.0, moving=moving)
    lowered = lower(tape, 2, lambda task, group: held)
    timeline = simulate(place(lowered.schedule, switch(2, float("inf"))), "simpy")
    took = [
        float(timeline.end[lowered.end[k]][0] - timeline.start[lowered.begin[k]][0])
        for k in (1, 2, 3)
    ]
    assert took == pytest.approx([4.0, 3.0, 2.0], rel=1e-6)


def test_before_hopper_a_product_ends_when_its_result_is_written() -> None:
    m, n, k = 8192, 6144, 768
    ahead, after = (replace(H100, unhidden=part) for part in (0.0, 1.0))
    written = 2 * m * n / (H100.bandwidth * H100.memory)
    more = after.gemm_seconds(m, n, k) - ahead.gemm_seconds(m, n, k)
    assert more == pytest.approx(written)


def test_attention_that_stores_scores_reads_them_again_and_again() -> None:
    fused, unfused = (setting(attention=kind, batch=1) for kind in ("fused", "unfused"))
    more = sum(task.seconds for task in training_step(unfused).entries)
    more -= sum(task.seconds for task in training_step(fused).entries)
    scores = SMALL.heads * 256 * 256
    least = SMALL.layers * (9 * 2 + 2) * scores / (H100.bandwidth * H100.memory)
    assert more > least


def test_checkpoints_of_operations_repeat_every_narrow_product() -> None:
    """PyTorch keeps every other product in 16 bits, by its operator, which narrow ones are not."""

    def again(dtype: str, **more: bool) -> float:
        alike = replace(H100, flops=H100.flops | {"fp8": H100.flops["bfloat16"]})
        alike = replace(alike, narrow={"fp8": alike.gemm}, bandwidth=1e18, kernel=0.0)
        s = setting(tp=2, recompute=("ops",), dtype=dtype, apart=True, roofline=alike, **more)
        parts = PassTable(s).of(layers_of(SMALL)[1]).backward
        (found,) = (part.seconds for part in parts if part.name == "again")
        return found

    def products(*outputs: int) -> float:
        layers = [LinearLayer(256, SMALL.hidden, one) for one in outputs]
        return forward(replace(H100, bandwidth=1e18, kernel=0.0), "bfloat16", layers)

    key, wide = SMALL.hidden // 2, SMALL.ffn // 2
    scattered = {"sequence_parallel": True}
    assert again("bfloat16", **scattered) == pytest.approx(products(key, wide), rel=1e-4)
    assert again("fp8", **scattered) == pytest.approx(products(key, key, key, wide, wide), rel=1e-4)


def test_each_token_may_predict_several() -> None:
    one, two = (Shapes(replace(SMALL, predicted=n), setting(model=SMALL)).logits[0] for n in (1, 2))
    assert two == replace(one, rows=2 * one.rows)
