"""Write one training step to a tape: pipeline schedules, passes, exchanges, small collectives."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import cache, partial

from netsim.base.values import dataclass
from netsim.workloads.data_parallel import DataParallelism, Ddp, Fsdp, Replica, Server, Zero
from netsim.workloads.kernels import FP32, Shapes, optimizer_seconds
from netsim.workloads.model import Layer, Transformer
from netsim.workloads.parts import PassPart
from netsim.workloads.passes import Passes, PassTable
from netsim.workloads.setting import ExtraCollective, Setting
from netsim.workloads.tape import Deps, StageRanks, Tape, emit, stage_ranks, tape_of_kinds

AXES_OF = {
    "all": ("tp", "cp", "ep", "dp", "pp"), "tp": ("tp",), "cp": ("cp",), "ep": ("ep",),
    "dp": ("cp", "ep", "dp"), "pp": ("pp",), "model": ("tp", "pp"),
}  # fmt: skip
PRODUCTS = 4  # of a block: into and out of attention and MLP


def preset(name: str, parameters: int, scale: int) -> ExtraCollective | None:
    """The extra collective with a well-known name, such as loss-reduce; None if there is none.

    `parameters` is the number of parameters of a rank, `scale` the samples of a micro-batch.
    """
    presets = {
        # Every rank starts from the weights of rank 0.
        "parameter-broadcast": ExtraCollective(
            name, "broadcast", AXES_OF["dp"], parameters * FP32, "init"
        ),
        "sync-batch-norm": ExtraCollective(
            name, "all_gather", AXES_OF["dp"], 53 * 2 * 256 * FP32 * scale, "forward"
        ),
        "loss-reduce": ExtraCollective(name, "all_reduce", AXES_OF["dp"], FP32, "step"),
        "gradient-norm": ExtraCollective(name, "all_reduce", AXES_OF["all"], FP32, "step"),
        "input-scatter": ExtraCollective(name, "broadcast", AXES_OF["tp"], 8 * scale, "forward"),
        "evaluation-gather": ExtraCollective(
            name, "all_gather", AXES_OF["dp"], FP32 * scale, "eval"
        ),
    }
    return presets.get(name)


def write_extras(tape: Tape, setting: Setting, when: str, stages: Sequence[StageRanks]) -> Deps:
    """Write the extra collectives of one moment of the step (`when`) to the tape; return their
    entries.
    """
    entries: list[int] = []
    for extra in setting.extras:
        if extra.when != when:
            continue
        groups = setting.grid.groups(extra.axes)
        after = [end for stage in stages for end in tape.last_kernel(stage.ranks)]
        entries += tape.collective(
            extra.name,
            "extra",
            extra.collective,
            groups,
            extra.nbytes,
            tuple(after),
            dtype=extra.dtype,
        )
    return tuple(entries)


# Pipeline schedules: the order in which a stage processes its passes.


@dataclass(frozen=True, slots=True)
class Action:
    """One pass of one micro-batch through one chunk of a stage's layers.

    `kind` is F (forward), B (backward; in schedules with W, only gradients of inputs) or W
    (gradients of weights).
    """

    kind: str
    micro_batch: int
    chunk: int = 0


def gpipe(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Action]:
    """Return the passes of one pipeline stage in order: all forward passes, then all backward
    passes (Huang et al. 2019).
    """
    ahead = [Action("F", k) for k in range(micro_batches)]
    return ahead + [Action("B", k) for k in range(micro_batches)]


def one_f_one_b(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Action]:
    """Return the passes of pipeline stage number `stage` of `stages` in order: forward passes to
    warm up, then alternately one forward and one backward pass (Narayanan et al. 2019).
    """
    warm = min(micro_batches, stages - stage - 1)
    actions = [Action("F", k) for k in range(warm)]
    for k in range(micro_batches - warm):
        actions += [Action("F", warm + k), Action("B", k)]
    return actions + [Action("B", k) for k in range(micro_batches - warm, micro_batches)]


def interleaved(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Action]:
    """Return the passes of pipeline stage number `stage` of `stages` in order: alternately one
    forward and one backward pass over several chunks of each stage (Narayanan et al. 2021).

    Groups of `stages` micro-batches pass chunk 0, then chunk 1, and so on; backward in reverse.
    """
    total = micro_batches * chunks
    warm = min(total, 2 * (stages - stage - 1) + (chunks - 1) * stages)
    ahead = [_interleaved_action("F", k, stages, micro_batches, chunks) for k in range(total)]
    back = [_interleaved_action("B", k, stages, micro_batches, chunks) for k in range(total)]
    actions = ahead[:warm]
    for k in range(total - warm):
        actions += [ahead[warm + k], back[k]]
    return actions + back[total - warm :]


def _interleaved_action(
    kind: str, number: int, stages: int, micro_batches: int, chunks: int
) -> Action:
    """Return forward ("F") or backward ("B") pass number `number` of a stage in an interleaved
    schedule: which micro-batch passes which chunk.
    """
    group, inside = divmod(number, stages * chunks)
    size = min(stages, micro_batches - group * stages)
    chunk, place = divmod(inside, size)
    return Action(kind, group * stages + place, chunk if kind == "F" else chunks - 1 - chunk)


def zero_bubble(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Action]:
    """Return the passes of pipeline stage number `stage` of `stages` in order, by ZB-H1 (Qi et al.
    2024): 1F1B with delayed gradients of weights, more of them on later stages.

    The delayed gradients fill idle time at the end. No more activations are stored than with 1F1B.
    """
    actions: list[Action] = []
    pending: list[int] = []
    for action in one_f_one_b(stage, stages, micro_batches, chunks):
        actions.append(action)
        if action.kind == "B":
            pending.append(action.micro_batch)
            if len(pending) > stage:
                actions.append(Action("W", pending.pop(0)))
    return actions + [Action("W", k) for k in pending]


def in_a_row(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Action]:
    """Return the passes of one pipeline stage in order, with naive model parallelism: each
    micro-batch passes forward and backward before the next one begins.
    """
    return [Action(kind, k) for k in range(micro_batches) for kind in "FB"]


Order = Callable[[int, int, int, int], list[Action]]
SCHEDULES: dict[str, Order] = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zb-h1": zero_bubble,
    "naive": in_a_row,
}


def in_flight(actions: list[Action]) -> int:
    """Return how many passes through a chunk have their activations stored at the same time, at
    most, if a stage processes `actions` in order.
    """
    now = most = 0
    last = "W" if any(action.kind == "W" for action in actions) else "B"
    for action in actions:
        now += (action.kind == "F") - (action.kind == last)
        most = max(most, now)
    return most


DATA = {
    "allreduce": Ddp, "ddp": Ddp, "parameter-server": Server, "zero1": Zero, "zero2": Zero,
    "distributed-optimizer": Zero, "zero3": Fsdp, "fsdp": Fsdp, "fsdp2": Fsdp,
}  # fmt: skip


@dataclass
class _Stage:
    """A pipeline stage while its part of the tape is written.

    - `actions`: the passes that are not written yet.
    - `sends`: by direction ("F" or "B"), sends that later passes must wait for.
    """

    at: StageRanks
    chunks: list[tuple[Layer, ...]]
    data: DataParallelism
    actions: deque[Action]
    sends: dict[str, Deps] = field(default_factory=dict)


@dataclass(frozen=True)
class ChunkPass:
    """A pass through a chunk of layers without any exchange of data parallelism; `parts`
    by layer.
    """

    kind: str
    at: StageRanks
    parts: tuple[tuple[PassPart, ...], ...]


def training_step(
    setting: Setting, pass_seconds: Callable[[ChunkPass], float] | None = None
) -> Tape:
    """The tape of one training step.

    With `pass_seconds`, each pass without exchanges of data parallelism becomes a single kernel
    with the seconds that it returns. If GPUs are of several kinds, kernels have the time of each
    kind.
    """
    kinds = setting.gpu_kinds
    if kinds is None:
        return _Step(setting, pass_seconds).write()
    tapes = [
        _Step(replace(setting, roofline=roofline), pass_seconds).write()
        for roofline in kinds.rooflines
    ]
    return tape_of_kinds(tapes, kinds.of_rank)


def empty_tape(setting: Setting) -> Tape:
    """An empty tape with the launch times of a setting."""
    return Tape(launch=setting.launch, in_order=setting.connections == 1)


def synchronised(setting: Setting) -> Tape:
    """The tape of the exchange of weights between islands.

    Each rank exchanges a part of its island's weights with the same rank of all other islands. If
    weights are not sharded, the parts are then gathered inside the island.
    """
    tape = Tape(phase="sync")
    sharded = DATA[setting.data] is Fsdp
    for number, chunks in enumerate(setting.stages()):
        layers = tuple(layer for chunk in chunks for layer in chunk)
        replica = Replica(tape, setting, stage_ranks(setting.grid, number), layers)
        for expert, count in replica.elements.items():
            inside = replica.groups[expert]
            width = inside.shape[1]
            element = setting.gradient_element
            across = inside.reshape(-1, setting.islands, width).transpose(0, 2, 1)
            met = replica.exchange(
                "weights across",
                "all_reduce",
                -(-count // width) * element,
                (),
                groups=across.reshape(-1, setting.islands),
            )
            if not sharded:
                replica.exchange("weights", "all_gather", count * element, met, groups=inside)
    return tape


class _Step:
    """Writes the tape of a step."""

    def __init__(self, setting: Setting, pass_seconds: Callable[[ChunkPass], float] | None) -> None:
        self.setting = setting
        self.tape = empty_tape(setting)
        self.pass_seconds = pass_seconds
        self.passes = PassTable(setting)
        order = SCHEDULES[setting.schedule]
        stages = setting.degree("pp")
        micro_batches = setting.micro_batches
        self.stages = []
        for number, chunks in enumerate(setting.stages()):
            at = stage_ranks(setting.grid, number)
            layers = tuple(layer for chunk in chunks for layer in chunk)
            data = DATA[setting.data](Replica(self.tape, setting, at, layers))
            actions = deque(order(number, stages, micro_batches, setting.chunks))
            self.stages.append(_Stage(at, chunks, data, actions))
        self.sent: dict[tuple[str, int, int], Deps] = {}
        self.losses: dict[int, Deps] = {}
        self.pairs = cache(setting.grid.pairs)
        self.initial_waits: Deps = ()

    def write(self) -> Tape:
        """Write the passes of all stages, each as soon as the passes that it waits for are on the
        tape; return the tape.
        """
        self.initial_waits = self._extras("forward")
        while any(stage.actions for stage in self.stages):
            moved = False
            for stage in self.stages:
                while stage.actions and self._ready(stage, stage.actions[0]):
                    self._write_action(stage, stage.actions.popleft())
                    moved = True
            assert moved, "a pipeline schedule that waits for itself"
        self._write_end()
        return self.tape

    def _extras(self, when: str) -> Deps:
        """Write the extra collectives of a moment of the step; return their entries."""
        return write_extras(self.tape, self.setting, when, [stage.at for stage in self.stages])

    def _place_in_model(self, stage: _Stage, action: Action) -> int:
        """The position of an action's chunk in the order of the model."""
        return action.chunk * len(self.stages) + stage.at.number

    @property
    def _last_place(self) -> int:
        """The position of the last chunk of the model."""
        return len(self.stages) * self.setting.chunks - 1

    def _ready(self, stage: _Stage, action: Action) -> bool:
        """Whether the pass that an action waits for is on the tape."""
        place = self._place_in_model(stage, action)
        if action.kind == "F":
            return place == 0 or ("F", action.micro_batch, place - 1) in self.sent
        if action.kind == "B":
            return place == self._last_place or ("B", action.micro_batch, place + 1) in self.sent
        return True

    def _select(self, stage: _Stage) -> _Stage:
        """Make `stage` the one whose host launches the following entries; return it."""
        self.tape.at = stage.at.number
        return stage

    def _write_action(self, stage: _Stage, action: Action) -> None:
        """Write an action of a stage to the tape."""
        self._select(stage)
        self.tape.micro_batch = action.micro_batch
        self.tape.phase = {"F": "forward", "B": "backward", "W": "weights"}[action.kind]
        self.tape.chunk = action.chunk if self.setting.chunks > 1 else -1
        {"F": self._forward, "B": self._backward, "W": self._weights}[action.kind](stage, action)
        self.tape.layer = ""

    def _entries_to_wait_for(self, stage: _Stage, key: tuple[str, int, int]) -> Deps:
        """The entries that a pass waits for: the send of its input, and this stage's own sends that
        block it.

        `key` names the pass that sends the input, as (kind, micro-batch, position of the chunk).
        """
        held = [key[0]] if self.setting.blocking_sends is None else [*stage.sends]
        sends = [send for kind in held for send in stage.sends.pop(kind, ())]
        return (*self.sent.get(key, ()), *sends)

    def _numbered(self, stage: _Stage, action: Action) -> list[tuple[int, Layer]]:
        """The layers of an action, each with its number in the stage."""
        before = sum(len(chunk) for chunk in stage.chunks[: action.chunk])
        return list(enumerate(stage.chunks[action.chunk], before))

    def _forward(self, stage: _Stage, action: Action) -> None:
        """Write a forward pass, and the send of its output."""
        place = self._place_in_model(stage, action)
        after = self._entries_to_wait_for(stage, ("F", action.micro_batch, place - 1))
        if action.micro_batch == 0:
            after = (*after, *self.initial_waits)
        if self.pass_seconds is not None and stage.data.has_no_exchange(
            "F", action.micro_batch, last=False
        ):
            after = (self._single_kernel(self.pass_seconds, stage, action, after),)
        else:
            after = self._layers_forward(stage, action, after)
        if place < self._last_place:
            self._send(stage, action, place, 1, after)
        else:
            self.losses[action.micro_batch] = after

    def _single_kernel(
        self, pass_seconds: Callable[[ChunkPass], float], stage: _Stage, action: Action, after: Deps
    ) -> int:
        """Write a pass as one kernel with the seconds that `pass_seconds` returns; return its
        entry.
        """
        layer_passes = [self.passes.of(layer) for layer in stage.chunks[action.chunk]]
        if action.kind == "F":
            parts = tuple(passes_of_layer.forward for passes_of_layer in layer_passes)
        else:
            parts = tuple(
                self._backward_parts(passes_of_layer) for passes_of_layer in reversed(layer_passes)
            )
        seconds = pass_seconds(ChunkPass(action.kind, stage.at, parts))
        launches = sum(part.launches for parts_of_layer in parts for part in parts_of_layer)
        return self.tape.compute("pass", stage.at.ranks, seconds, after, launches)

    def _backward_parts(self, passes: Passes) -> tuple[PassPart, ...]:
        """The parts of a layer's backward pass: with ZB-H1, without the gradients of weights."""
        return passes.inputs if self.setting.schedule == "zb-h1" else passes.backward

    def _layers_forward(self, stage: _Stage, action: Action, after: Deps) -> Deps:
        """Write a forward pass layer by layer; return the entries that end it."""
        for number, layer in self._numbered(stage, action):
            self.tape.layer = layer.name
            more = stage.data.before_forward(number)
            parts = self.passes.of(layer).forward
            done = emit(self.tape, stage.at, parts, (*after, *more), self.setting.stored)
            stage.data.after_forward(number, done)
            after = done.ends
        return after

    def _backward(self, stage: _Stage, action: Action) -> None:
        """Write a backward pass, and the send of its gradients."""
        split = self.setting.schedule == "zb-h1"
        place = self._place_in_model(stage, action)
        after = self._entries_to_wait_for(stage, ("B", action.micro_batch, place + 1))
        if place == self._last_place:
            after = (*after, *self.losses.pop(action.micro_batch))
        last = self._is_last(stage, action)
        if self.pass_seconds is not None and (
            split or stage.data.has_no_exchange("B", action.micro_batch, last=last)
        ):
            after = (self._single_kernel(self.pass_seconds, stage, action, after),)
        else:
            after = self._layers_backward(stage, action, after, last=last)
        if place > 0:
            self._send(stage, action, place, -1, after)

    def _layers_backward(self, stage: _Stage, action: Action, after: Deps, *, last: bool) -> Deps:
        """Write a backward pass layer by layer; return the entries that end it."""
        for number, layer in reversed(self._numbered(stage, action)):
            self.tape.layer = layer.name
            passes = self.passes.of(layer)
            more = stage.data.before_backward(number)
            parts = self._backward_parts(passes)
            reduced = last or not self.setting.no_sync
            made = partial(stage.data.when_made, number) if reduced else None
            done = emit(self.tape, stage.at, parts, (*after, *more), self.setting.stored, made)
            after = done.ends
            if self.setting.schedule != "zb-h1":
                stage.data.after_backward(number, self._last_first(done.last, after), last=last)
        return after

    @staticmethod
    def _last_first(last: int, after: Deps) -> Deps:
        """Return the entry `last` (the last kernel of a pass; -1: none), followed by the entries of
        `after`, without repeating `last`.
        """
        if last < 0:
            return after
        return (last, *(end for end in after if end != last))

    def _weights(self, stage: _Stage, action: Action) -> None:
        """Write the delayed gradients of weights of an action."""
        for number, layer in reversed(self._numbered(stage, action)):
            self.tape.layer = layer.name
            parts: tuple[PassPart, ...] = self.passes.of(layer).weights
            done = emit(self.tape, stage.at, parts, (), self.setting.stored)
            if done.last >= 0:
                stage.data.after_backward(number, done.ends, last=self._is_last(stage, action))

    def _is_last(self, stage: _Stage, action: Action) -> bool:
        """Whether the stage has no further action of this kind on this chunk."""
        later_actions = [
            action_left
            for action_left in stage.actions
            if action_left.kind == action.kind and action_left.chunk == action.chunk
        ]
        return not later_actions

    def _send(self, stage: _Stage, action: Action, place: int, step: int, after: Deps) -> None:
        """Write the transfer to the next stage (`step` 1), or to the previous one (-1), after the
        entries `after`.

        `place` is the position of the chunk in the model.
        """
        target = (place + step) % len(self.stages)
        nbytes = self._sent_bytes(stage, action)
        link = (stage.at.number, target)
        self.tape.layer = ""
        payload = "activations" if step > 0 else "gradients"
        made = self.tape.collective(
            payload,
            "pp",
            "p2p",
            self.pairs(*link),
            nbytes,
            after,
            stream=f"pp {link[0]}>{link[1]}",
            dtype=self.setting.stored,
            posted=True,
        )
        sent = self.sent[action.kind, action.micro_batch, place] = made or after
        if self.setting.blocking_sends is not False:
            stage.sends[action.kind] = sent

    def _sent_bytes(self, stage: _Stage, action: Action) -> int:
        """The bytes that an action sends to the next or previous stage."""
        model = self.setting.model
        if isinstance(model, Transformer):
            return Shapes(model, self.setting).local * model.hidden * self.setting.element
        layers = stage.chunks[action.chunk]
        edge = layers[-1] if action.kind == "F" else self._layer_before(stage, action)
        return max(1, int(edge.plain.output * self.setting.micro))

    def _layer_before(self, stage: _Stage, action: Action) -> Layer:
        """The layer of the model before the first layer of an action."""
        place = self._place_in_model(stage, action) - 1
        chunk, number = divmod(place, len(self.stages))
        return self.stages[number].chunks[chunk][-1]

    def _write_end(self) -> None:
        """Write what follows the last pass: reductions, optimizer, extra collectives."""
        setting = self.setting
        tape = self.tape
        tape.micro_batch = -1
        tape.chunk = -1
        tape.phase = "backward"
        ends = [self._select(stage).data.finish() for stage in self.stages]
        self._extras("backward")
        tied = self._write_tied_gradients()
        tape.phase = "step"
        tape.add_deferred()
        extra = self._extras("step")
        for stage, end in zip(self.stages, ends, strict=True):
            sums = (
                *self._write_gradients_of_norms(self._select(stage)),
                *self._write_largest_elements(stage),
            )
            held = sum(stage.data.replica.elements.values())
            seconds = optimizer_seconds(setting, -(-held // stage.data.shard()))
            after = (*end, *tied, *sums, *extra)
            done = tape.compute("optimizer", stage.at.ranks, seconds, after)
            stage.data.after_optimizer(done)
        self._extras("eval")

    def _write_tied_gradients(self) -> Deps:
        """Write the sum of the gradients of an embedding that the first and the last stage share;
        return its entry, or () if they share none.
        """
        model = self.setting.model
        stages = len(self.stages)
        if not isinstance(model, Transformer) or not model.tied or stages == 1:
            return ()
        if model.adapters is not None:
            return ()  # the embedding is frozen
        count = -(-model.vocabulary // self.setting.degree("tp")) * model.hidden
        pairs = self.setting.grid.pairs(0, stages - 1)
        after = tuple(
            end
            for stage in (self.stages[0], self.stages[-1])
            for end in self.tape.last_kernel(stage.at.ranks)
        )
        return self.tape.collective(
            "embedding gradients",
            "pp",
            "all_reduce",
            pairs,
            count * self.setting.gradient_element,
            after,
            stream="pp embedding",
            dtype=self.setting.gradient_dtype,
        )

    def _write_largest_elements(self, stage: _Stage) -> Deps:
        """Write the all-reduce of largest elements for delayed scaling, three tensors of every
        product; return its entry, or () without delayed scaling.
        """
        setting = self.setting
        if not setting.narrow or setting.scaling != "delayed":
            return ()
        layers = sum(layer.kind == "block" for layer in stage.data.replica.layers)
        groups = setting.grid.groups(("tp", "cp", "ep", "dp"), stage.at.number)
        return self.tape.collective(
            "largest elements",
            "extra",
            "all_reduce",
            groups,
            layers * PRODUCTS * 3 * FP32,
            self.tape.last_kernel(stage.at.ranks),
            dtype="float",
        )

    def _write_gradients_of_norms(self, stage: _Stage) -> Deps:
        """Write the sum over tp of the gradients of norms and biases, each of which saw a part of
        the tokens; return its entry, or () without sequence parallelism.
        """
        setting = self.setting
        if not setting.sequence_parallel:
            return ()
        small = sum(
            tensor.total
            for layer in stage.data.replica.layers
            for tensor in layer.tensors
            if tensor.split != "tp" and not tensor.frozen
        )
        return self.tape.collective(
            "gradients of norms",
            "tp",
            "all_reduce",
            stage.at.groups["tp"],
            small * setting.gradient_element,
            self.tape.last_kernel(stage.at.ranks),
            dtype=setting.gradient_dtype,
        )
