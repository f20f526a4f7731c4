"""One training step on the tape: pipelined passes, data parallelism around them, the optimizer."""

from collections import deque
from dataclasses import dataclass, field

from netsim.workloads.ddp import Ddp
from netsim.workloads.emit import StageRanks, emit, stage_ranks
from netsim.workloads.extras import write_extras
from netsim.workloads.fsdp import Fsdp
from netsim.workloads.grid import Ranks
from netsim.workloads.model import Layer, Transformer
from netsim.workloads.optimizer import optimizer_seconds
from netsim.workloads.parts import Part
from netsim.workloads.passes import PassTable
from netsim.workloads.pipeline import SCHEDULES, Action
from netsim.workloads.replicas import Alone, Replica
from netsim.workloads.server import Server
from netsim.workloads.setting import Setting
from netsim.workloads.shapes import Shapes
from netsim.workloads.tape import Deps, Tape
from netsim.workloads.zero import Zero

DATA = {
    "allreduce": Ddp,
    "ddp": Ddp,
    "parameter-server": Server,
    "zero1": Zero,
    "zero2": Zero,
    "distributed-optimizer": Zero,
    "zero3": Fsdp,
    "fsdp": Fsdp,
    "fsdp2": Fsdp,
}


@dataclass
class _Stage:
    """One pipeline stage while the step is written: its layers, its schedule, what it waits for."""

    at: StageRanks
    chunks: list[tuple[Layer, ...]]
    data: Alone
    actions: deque[Action]
    sends: list[int] = field(default_factory=list)


def training_step(setting: Setting) -> Tape:
    """The tape of one step."""
    return _Step(setting).write()


class _Step:
    """A step being written: its tape, its stages, and what has been sent between them."""

    def __init__(self, setting: Setting) -> None:
        self.setting, self.tape = setting, Tape()
        self.passes = PassTable(setting)
        order = SCHEDULES[setting.schedule]
        stages, micro_batches = setting.degree("pp"), setting.micro_batches
        self.stages = []
        for number, chunks in enumerate(setting.stages()):
            at = stage_ranks(setting.grid, number)
            layers = tuple(layer for chunk in chunks for layer in chunk)
            data = DATA[setting.data](Replica(self.tape, setting, at, layers))
            actions = deque(order(number, stages, micro_batches, setting.chunks))
            self.stages.append(_Stage(at, chunks, data, actions))
        self.sent: dict[tuple[str, int, int], Deps] = {}
        self.losses: dict[int, Deps] = {}
        self.links: dict[tuple[int, int], Ranks] = {}
        self.before: Deps = ()

    def write(self) -> Tape:
        """Stages take turns, each as far as what it waits for has been written down."""
        self.before = self._extras("forward")
        while any(stage.actions for stage in self.stages):
            moved = False
            for stage in self.stages:
                while stage.actions and self._ready(stage, stage.actions[0]):
                    self._act(stage, stage.actions.popleft())
                    moved = True
            assert moved, "a pipeline schedule that waits for itself"
        self._finish()
        return self.tape

    def _extras(self, when: str) -> Deps:
        return write_extras(self.tape, self.setting, when, [stage.at for stage in self.stages])

    def _virtual(self, stage: _Stage, action: Action) -> int:
        """The place of a chunk in the model as a whole."""
        return action.chunk * len(self.stages) + stage.at.number

    @property
    def _last_place(self) -> int:
        return len(self.stages) * self.setting.chunks - 1

    def _ready(self, stage: _Stage, action: Action) -> bool:
        place = self._virtual(stage, action)
        if action.kind == "F":
            return place == 0 or ("F", action.micro_batch, place - 1) in self.sent
        if action.kind == "B":
            return place == self._last_place or ("B", action.micro_batch, place + 1) in self.sent
        return True

    def _act(self, stage: _Stage, action: Action) -> None:
        self.tape.micro_batch = action.micro_batch
        self.tape.phase = {"F": "forward", "B": "backward", "W": "weights"}[action.kind]
        self.tape.chunk = action.chunk if self.setting.chunks > 1 else -1
        {"F": self._forward, "B": self._backward, "W": self._weights}[action.kind](stage, action)
        self.tape.layer = ""

    def _waits(self, stage: _Stage, key: tuple[str, int, int]) -> Deps:
        """What the sender of this pass's input did, and this stage's own blocking sends."""
        found = (*self.sent.get(key, ()), *stage.sends)
        stage.sends.clear()
        return found

    def _numbered(self, stage: _Stage, action: Action) -> list[tuple[int, Layer]]:
        """The layers of a chunk with their numbers within the stage."""
        before = sum(len(chunk) for chunk in stage.chunks[: action.chunk])
        return list(enumerate(stage.chunks[action.chunk], before))

    def _forward(self, stage: _Stage, action: Action) -> None:
        place = self._virtual(stage, action)
        after = self._waits(stage, ("F", action.micro_batch, place - 1))
        if action.micro_batch == 0:
            after = (*after, *self.before)
        for number, layer in self._numbered(stage, action):
            self.tape.layer = layer.name
            more = stage.data.before_forward(number)
            parts = self.passes.of(layer).forward
            done = emit(self.tape, stage.at, parts, (*after, *more), self.setting.dtype)
            stage.data.after_forward(number, done)
            after = done.ends
        if place < self._last_place:
            self._send(stage, action, place, 1, after)
        else:
            self.losses[action.micro_batch] = after

    def _backward(self, stage: _Stage, action: Action) -> None:
        split = self.setting.schedule == "zb-h1"
        place = self._virtual(stage, action)
        after = self._waits(stage, ("B", action.micro_batch, place + 1))
        if place == self._last_place:
            after = (*after, *self.losses.pop(action.micro_batch))
        for number, layer in reversed(self._numbered(stage, action)):
            self.tape.layer = layer.name
            passes = self.passes.of(layer)
            more = stage.data.before_backward(number)
            parts = passes.inputs if split else passes.backward
            done = emit(self.tape, stage.at, parts, (*after, *more), self.setting.dtype)
            after = done.ends
            if not split:
                stage.data.after_backward(
                    number, self._ends(done.last, after), last=self._last(stage, action)
                )
        if place > 0:
            self._send(stage, action, place, -1, after)

    @staticmethod
    def _ends(last: int, after: Deps) -> Deps:
        """The last kernel first, then what else has to be over."""
        return (last, *(one for one in after if one != last))

    def _weights(self, stage: _Stage, action: Action) -> None:
        for number, layer in reversed(self._numbered(stage, action)):
            self.tape.layer = layer.name
            parts: tuple[Part, ...] = self.passes.of(layer).weights
            done = emit(self.tape, stage.at, parts, (), self.setting.dtype)
            if done.last >= 0:
                stage.data.after_backward(number, done.ends, last=self._last(stage, action))

    def _last(self, stage: _Stage, action: Action) -> bool:
        """Whether no more gradients come for this chunk."""
        later = [
            one for one in stage.actions if one.kind == action.kind and one.chunk == action.chunk
        ]
        return not later

    def _send(self, stage: _Stage, action: Action, place: int, step: int, after: Deps) -> None:
        """Hand a micro-batch to the stage that has the next (or the previous) layers."""
        target = (place + step) % len(self.stages)
        nbytes = self._handed_on(stage, action)
        link = (stage.at.number, target)
        if link not in self.links:
            self.links[link] = self.setting.grid.pairs(*link)
        self.tape.layer = ""
        what = "activations" if step > 0 else "gradients"
        made = self.tape.collective(
            what, "pp", "p2p", self.links[link], nbytes, after,
            stream=f"pp {link[0]}>{link[1]}", dtype=self.setting.dtype, posted=True,
        )  # fmt: skip
        sent = after if made is None else (made,)
        self.sent[action.kind, action.micro_batch, place] = sent
        if self.setting.blocking_sends:
            stage.sends += sent

    def _handed_on(self, stage: _Stage, action: Action) -> int:
        """Bytes between two stages, on one rank."""
        model = self.setting.model
        if isinstance(model, Transformer):
            return Shapes(model, self.setting).handed_on
        layers = stage.chunks[action.chunk]
        edge = layers[-1] if action.kind == "F" else self._before(stage, action)
        return max(1, int(edge.plain.output * self.setting.micro))

    def _before(self, stage: _Stage, action: Action) -> Layer:
        """The layer whose output the first layer of a chunk works on."""
        place = self._virtual(stage, action) - 1
        chunk, number = divmod(place, len(self.stages))
        return self.stages[number].chunks[chunk][-1]

    def _finish(self) -> None:
        """Gradients that are still to be reduced, the optimizer, weights to be gathered."""
        setting, tape = self.setting, self.tape
        tape.micro_batch, tape.chunk, tape.phase = -1, -1, "backward"
        ends = [stage.data.finish() for stage in self.stages]
        self._extras("backward")
        tied = self._tied()
        tape.phase = "step"
        tape.catch_up()
        extra = self._extras("step")
        for stage, end in zip(self.stages, ends, strict=True):
            sums = self._norms(stage)
            held = sum(stage.data.replica.elements.values())
            seconds = optimizer_seconds(setting, -(-held // stage.data.shard()))
            after = (*end, *tied, *sums, *extra)
            done = tape.compute("optimizer", stage.at.ranks, seconds, after)
            stage.data.after_optimizer(done)
        self._extras("eval")

    def _tied(self) -> Deps:
        """First and last stage both have the embedding, and add up its gradients."""
        model, stages = self.setting.model, len(self.stages)
        if not isinstance(model, Transformer) or not model.tied or stages == 1:
            return ()
        count = -(-model.vocabulary // self.setting.degree("tp")) * model.hidden
        pairs = self.setting.grid.pairs(0, stages - 1)
        after = tuple(
            end for stage in (self.stages[0], self.stages[-1])
            for end in self.tape.last_of(stage.at.ranks)
        )  # fmt: skip
        made = self.tape.collective(
            "embedding gradients", "pp", "all_reduce", pairs, count * self.setting.gradient_element,
            after, stream="pp embedding", dtype=self.setting.gradient_dtype,
        )  # fmt: skip
        return () if made is None else (made,)

    def _norms(self, stage: _Stage) -> Deps:
        """Sequence parallelism: norms and biases have seen only a part of the tokens."""
        setting = self.setting
        if not setting.sequence_parallel:
            return ()
        small = sum(
            tensor.total
            for layer in stage.data.replica.layers
            for tensor in layer.tensors
            if tensor.split != "tp"
        )
        made = self.tape.collective(
            "gradients of norms", "tp", "all_reduce", stage.at.groups["tp"],
            small * setting.gradient_element, self.tape.last_of(stage.at.ranks),
            dtype=setting.gradient_dtype,
        )  # fmt: skip
        return () if made is None else (made,)
