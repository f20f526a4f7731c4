"""Times of layers from a profile: kernels go to the layer that launched them, or whose gradient
they are; recomputed ones, the optimizer's and NCCL's to none.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest

from netsim.base.errors import InputError
from netsim.scenario.cells import expand
from netsim.training.recorded.kineto import ThreadInterval, holding
from netsim.training.recorded.layers import _ProfiledOperators, layer_times
from netsim.training.resolve import resolve_step
from netsim.yamlio.read import parse_source
from tests.training.profiler import AUTOGRAD, MAIN, NAME, Recording, said

BLOCKS = ["layer 0", "layer 1", "layer 2"]
NAMES = ["embedding", *BLOCKS, "head"]


class Model:
    """A forward and a backward pass of three blocks on the host, kernels a millisecond behind."""

    def __init__(self) -> None:
        self.made, self.at, self.number = Recording(), 0.0, 1000

    def operator(self, name: str, kernels: list[float], *, thread: int = MAIN, **args: int) -> None:
        """An operator that launches kernels of these durations."""
        lasts = 10.0 * (len(kernels) + 1)
        self.made.event("cpu_op", name, self.at, lasts, tid=thread, args=dict(args))
        for place, seconds in enumerate(kernels, 1):
            launched = self.at + 10 * place
            self.made.kernel(launched + 1000, seconds, launched=launched, thread=thread)
        self.at += lasts + 1

    def forward(self, name: str, kernels: list[float], *, thread: int = MAIN) -> int:
        self.number += 1
        # A view before it shows the same number, as it needs no gradient of its own.
        self.operator("aten::view", [], thread=thread, **{"Sequence number": self.number})
        self.operator(name, kernels, thread=thread, **{"Sequence number": self.number})
        return self.number

    def backward(self, number: int, kernels: list[float], *, forward_thread: int = 1) -> None:
        name = "autograd::engine::evaluate_function: AddmmBackward0"
        more = {"Sequence number": number, "Fwd thread id": forward_thread}
        self.operator(name, kernels, thread=AUTOGRAD, **more)

    def module(self, name: str, begin: float, thread: int = MAIN) -> None:
        self.made.event("python_function", name, begin, self.at - begin - 0.5, tid=thread)

    def step(self, *, annotate: bool = False, recompute: bool = False) -> None:
        embedding = self.forward("aten::embedding", [3.0])
        numbers = []
        for layer in range(3):
            begin = self.at
            inner = self.at + 0.1
            numbers.append(self.forward("aten::addmm", [10.0 + layer, 5.0]))
            self.module(f"nn.Module: Attention_{layer}", inner)
            if annotate:
                span = self.at - begin - 0.5
                self.made.event("user_annotation", f"layer {layer}", begin, span)
            else:
                self.module(f"nn.Module: DecoderLayer_{layer + 4}", begin)
        head = self.forward("aten::mm", [8.0])
        self.backward(head, [6.0, 6.0])
        for layer in (2, 1, 0):
            if recompute:
                outer = self.at
                again = self.at + 1
                self.number -= 200  # threads count for themselves
                inside = self.forward("aten::addmm", [10.0 + layer, 5.0], thread=AUTOGRAD)
                self.number += 200
                self.module(f"nn.Module: DecoderLayer_{layer + 4}", again, AUTOGRAD)
                self.made.event(
                    "cpu_op",
                    "autograd::engine::evaluate_function: CheckpointBackward",
                    outer,
                    self.at - outer - 0.2,
                    tid=AUTOGRAD,
                    args={"Sequence number": numbers[layer], "Fwd thread id": 1},
                )
                self.backward(inside, [20.0 + layer, 9.0], forward_thread=2)
            else:
                self.backward(numbers[layer], [20.0 + layer, 9.0])
        self.backward(embedding, [4.0])
        self.made.kernel(self.at + 1000, 99, launched=self.at, name=NAME, stream=20, **said())
        self.operator("aten::_foreach_add_", [77.0])  # the optimizer

    def write(self, folder: Path) -> Path:
        return self.made.write(folder / "t.json")


EXPECTED = {
    "embedding": (3, 4), "layer 0": (15, 29), "layer 1": (16, 30), "layer 2": (17, 31),
    "head": (8, 12),
}  # fmt: skip


@pytest.mark.parametrize("annotate", [False, True])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_kernels_go_to_their_layers(tmp_path, annotate, recompute, steps) -> None:
    model = Model()
    for _ in range(steps):
        model.step(annotate=annotate, recompute=recompute and not annotate)
    found = layer_times(model.write(tmp_path), NAMES, BLOCKS, 3)
    assert {name: tuple(s * 1e6 for s in pair) for name, pair in found.items()} == {
        name: pytest.approx(pair) for name, pair in EXPECTED.items()
    }


def test_blocks_of_other_stages_are_as_long_as_those_that_are_here(tmp_path) -> None:
    model = Model()
    model.step()
    blocks = [f"layer {k}" for k in range(6)]
    found = layer_times(model.write(tmp_path), ["embedding", *blocks, "head"], blocks, 3)
    assert found["layer 5"][0] == pytest.approx(16e-6)
    assert found["layer 0"][0] == pytest.approx(15e-6)


def test_a_scenario_computes_as_long_as_its_trace(tmp_path) -> None:
    model = Model()
    model.step()
    path = model.write(tmp_path)
    text = f"""\
cluster: {{machine: dgx-h100}}
workload:
  model: {{layers: 3, hidden: 512, heads: 8, ffn: 2048, vocabulary: 1000, sequence: 256}}
  batch: 8
  compute: {{times: {path}}}
"""
    resolved = resolve_step(expand(parse_source(text, "x.yaml"))[0])
    tape = resolved.tape()
    spent = {(t.layer, t.phase): 0.0 for t in tape.entries}
    for task in tape.entries:
        spent[task.layer, task.phase] += task.seconds * (task.name != "copy in")
    for name, (ahead, back) in EXPECTED.items():
        assert spent[name, "forward"] == pytest.approx(ahead * 1e-6)
        assert spent[name, "backward"] == pytest.approx(back * 1e-6)


def test_a_trace_without_modules_says_what_it_has(tmp_path) -> None:
    model = Model()
    model.step()
    path = model.write(tmp_path)
    with pytest.raises(InputError, match=r"expected 8 modules .*3 Attention, 3 Decoder"):
        layer_times(path, [f"layer {k}" for k in range(8)], [f"layer {k}" for k in range(8)], 8)


def test_a_trace_whose_kernels_nobody_launched_is_told(tmp_path) -> None:
    model = Model()
    model.step()
    model.made.events = [e for e in model.made.events if e.get("cat") != "cuda_runtime"]
    with pytest.raises(InputError, match="no kernel could be assigned to a layer"):
        layer_times(model.write(tmp_path), NAMES, BLOCKS, 3)


def test_a_layer_may_begin_and_end_with_its_step() -> None:
    whole, early, late = (
        ThreadInterval(0.0, 9.0, 1, "a"),
        ThreadInterval(-0.5, 9.0, 1, "b"),
        ThreadInterval(0.0, 9.5, 1, "c"),
    )
    found = SimpleNamespace(events=SimpleNamespace(steps={3: (0.0, 9.0)}))
    assert _ProfiledOperators._in_steps(found, [whole, early, late]) == [whole]


def test_intervals_hold_moments_of_their_own_thread() -> None:
    outer, inner = ThreadInterval(0, 10, 1, "outer"), ThreadInterval(2, 4, 1, "inner")
    later, other = ThreadInterval(6, 7, 1, "later"), ThreadInterval(0, 10, 2, "other")
    moments = [(3.0, 1), (5.0, 1), (6.5, 1), (3.0, 2), (11.0, 1), (3.0, 3)]
    found = dict(holding([inner, later, outer, other], moments))
    names = [[one.name for one in found[k]] for k in range(len(moments))]
    assert names == [["outer", "inner"], ["outer"], ["outer", "later"], ["other"], [], []]
