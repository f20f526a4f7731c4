"""Find in a PyTorch profile how long each layer of a model computes, forward and backward.

A kernel belongs to the layer that launched it: a module (profiled `with_modules` or `with_stack`)
or a `record_function` of the layer's name. A kernel of the backward pass belongs to the layer of
the forward operator with the same sequence number, which autograd gives to an operator and its
gradient. Kernels before the first block belong to the embedding, kernels after the last block to
the head.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from netsim.base.errors import InputError
from netsim.training.recorded import kineto
from netsim.training.recorded.kineto import (
    Event,
    Events,
    ThreadInterval,
    args_of,
    events_of,
    holding,
)

MODULE = re.compile(r"nn\.Module: (?P<kind>.+)_(?P<number>\d+)")
BACKWARD = "autograd::engine::evaluate_function"
BEFORE = "embedding"
AFTER = "head"
Times = dict[str, tuple[float, float]]


def layer_times(
    path: Path, names: Sequence[str], blocks: Sequence[str], blocks_per_rank: int
) -> Times:
    """By layer, the seconds (forward, backward) of one execution.

    Args:
        path: the profile.
        names: all layers of the model.
        blocks: those of `names` that are blocks of a transformer.
        blocks_per_rank: number of blocks that one rank runs.
    """
    data = kineto.read_json(path)
    trace = _ProfiledOperators(data["traceEvents"])
    spans = trace.annotated(names) or trace.modules(path, blocks, blocks_per_rank)
    times = trace.times(spans, ends=bool(blocks))
    if not any(sum(pair) for pair in times.values()):
        raise InputError(
            f"{path}: no kernel could be assigned to a layer",
            hint="profile CPU and CUDA together, with with_modules or with_stack, without graphs",
        )
    # Blocks that run on other ranks get the mean time of the blocks on this rank.
    here = [times[name] for name in blocks if name in times]
    if not here:
        return times
    ahead, back = (sum(pair[direction] for pair in here) / len(here) for direction in (0, 1))
    return {**dict.fromkeys(blocks, (ahead, back)), **times}


class _ProfiledOperators:
    """The operators and annotated spans of a profile, in the order of the file.

    `forward_thread` has, by position in `backward_operators`, autograd's number of the thread that
    ran the forward operator.
    """

    def __init__(self, events: Sequence[object]) -> None:
        self.events: Events = events_of(events)
        self.spans: list[ThreadInterval] = []
        self.forward_operators: list[ThreadInterval] = []
        self.backward_operators: list[ThreadInterval] = []
        self.forward_thread: dict[int, int] = {}
        for event in events:
            if isinstance(event, dict) and event.get("ph") == "X" and "dur" in event:
                self._add(event)

    def _add(self, event: Event) -> None:
        """Add an event to the list of its kind."""
        kind = str(event.get("cat", ""))
        name = str(event.get("name", ""))
        begin = float(event["ts"])
        number = args_of(event).get("Sequence number", -1)
        interval = ThreadInterval(
            begin,
            begin + float(event["dur"]),
            event.get("tid"),
            name,
            number if isinstance(number, int) else -1,
        )
        if kind in ("python_function", "user_annotation"):
            self.spans.append(interval)
        elif kind == "cpu_op" and name.startswith(BACKWARD):
            self.forward_thread[len(self.backward_operators)] = int(
                args_of(event).get("Fwd thread id", 0)
            )
            self.backward_operators.append(interval)
        elif kind == "cpu_op" and interval.number >= 0 and not args_of(event).get("Fwd thread id"):
            self.forward_operators.append(interval)

    def annotated(self, names: Sequence[str]) -> list[ThreadInterval]:
        """Return the `record_function` spans whose name is that of a layer."""
        layer_names = set(names)
        return [interval for interval in self.spans if interval.name in layer_names]

    def modules(
        self, path: Path, blocks: Sequence[str], blocks_per_rank: int
    ) -> list[ThreadInterval]:
        """The spans of those modules that are the blocks, with the names of the blocks.

        Blocks are the modules of a class with the right number of modules; if such classes are
        nested, of the outermost one.
        """
        kinds: dict[str, dict[int, list[ThreadInterval]]] = defaultdict(lambda: defaultdict(list))
        for interval in self.spans:
            match = MODULE.fullmatch(interval.name)
            if match:
                kinds[match["kind"]][int(match["number"])].append(interval)
        counts = {len(blocks), blocks_per_rank}
        fitting = {
            kind: by_number
            for kind, by_number in kinds.items()
            if len(by_number) in counts and blocks
        }
        if not fitting:
            seen = ", ".join(
                f"{len(by_number)} {kind}" for kind, by_number in list(kinds.items())[:6]
            )
            raise InputError(
                f"{path}: expected {blocks_per_rank} modules of one kind, or record_functions "
                f"called as layers are ({blocks[0] if blocks else 'names of the scenario'}, …), "
                f"got {seen or 'no modules'}",
                hint="profile with with_modules=True or with_stack=True",
            )
        longest = {
            name: sum(
                interval.end - interval.begin for seen in by_number.values() for interval in seen
            )
            for name, by_number in fitting.items()
        }
        kind = max(longest, key=longest.__getitem__)
        names = blocks if len(fitting[kind]) == len(blocks) else blocks[: len(fitting[kind])]
        return [
            ThreadInterval(interval.begin, interval.end, interval.thread, names[place])
            for place, number in enumerate(sorted(fitting[kind]))
            for interval in fitting[kind][number]
        ]

    def times(self, spans: Sequence[ThreadInterval], *, ends: bool) -> Times:
        """By layer, the seconds of one execution, (forward, backward); with `ends`, of embedding
        and head as well.
        """
        spans = self._in_steps(spans)
        within = dict(
            holding(
                self.backward_operators, [(interval.begin, interval.thread) for interval in spans]
            )
        )
        first = [interval for number, interval in enumerate(spans) if not within[number]]
        layers = _Layers(self, spans, first, ends=ends)
        runs = Counter(interval.name for interval in first)
        passes = max(runs.values(), default=1)
        spent: dict[tuple[str, int], float] = defaultdict(float)
        for layer, direction, seconds in layers.kernels():
            spent[layer, direction] += seconds
        return {
            layer: (spent[layer, 0] / times, spent[layer, 1] / times)
            for layer in dict.fromkeys(layer for layer, _ in spent)
            for times in [runs.get(layer, passes)]
        }

    def _in_steps(self, spans: Sequence[ThreadInterval]) -> list[ThreadInterval]:
        """The spans that lie within steps of the profiler; all spans if it marked no steps."""
        steps = list(self.events.steps.values())
        if not steps:
            return list(spans)
        return [
            interval
            for interval in spans
            if any(b <= interval.begin and interval.end <= e for b, e in steps)
        ]


class _Layers:
    """Assigns kernels of a profile to layers.

    Args:
        trace: operators of the profile.
        spans: spans of layers: forward passes, and recomputation during the backward pass.
        first: those of `spans` that are forward passes.
        ends: whether kernels before and after the blocks belong to embedding and head.
    """

    def __init__(
        self,
        trace: _ProfiledOperators,
        spans: Sequence[ThreadInterval],
        first: Sequence[ThreadInterval],
        *,
        ends: bool,
    ) -> None:
        self.trace = trace
        self.spans = spans
        self.ends = ends
        self.first = sorted(first, key=lambda interval: interval.begin)
        self.begins = [interval.begin for interval in self.first]
        self.backward = sorted(interval.begin for interval in trace.backward_operators)
        self.of_number = self._layers_of_backward()

    def kernels(self) -> list[tuple[str, int, float]]:
        """Return (layer, 0 for forward or 1 for backward, seconds) of every kernel of a layer."""
        events = self.trace.events
        computing_kernels = [kernel for kernel in events.kernels if not kineto.is_nccl(kernel)]
        launches = [events.launch_of(kernel) or (-1.0, None) for kernel in computing_kernels]
        tables = (self.trace.backward_operators, self.spans, self.trace.forward_operators)
        around = [dict(holding(table, launches)) for table in tables]
        layer_kernels = []
        for number, kernel in enumerate(computing_kernels):
            back, span, ahead = (table[number] for table in around)
            layer = ""
            direction = 0
            if back and not (span and span[-1].begin > back[-1].begin):
                layer = self.of_number.get(back[-1], "")
                direction = 1
            elif span and not back:
                layer = span[-1].name
            elif ahead and not back:
                layer = self._embedding_or_head(ahead[0])
            if layer:
                layer_kernels.append((layer, direction, float(kernel["dur"]) * 1e-6))
        return layer_kernels

    def _embedding_or_head(self, operator: ThreadInterval) -> str:
        """Return "embedding" or "head" for an operator outside of all blocks; "" for neither."""
        if not self.ends or not self.first:
            return ""
        place = bisect_left(self.begins, operator.begin)
        if place == 0:
            return BEFORE
        previous_end = self.first[place - 1].end
        next_backward = bisect_left(self.backward, previous_end)
        backward_began = (
            next_backward < len(self.backward) and self.backward[next_backward] <= operator.begin
        )
        if not backward_began:
            return AFTER
        return BEFORE if place < len(self.first) else ""

    def _layers_of_backward(self) -> dict[ThreadInterval, str]:
        """By operator of the backward pass, the layer of the forward operator with the same
        sequence number.

        Numbers are counted for each thread. An operator without a gradient shows the number of the
        next operator with a gradient; so of the operators with one number, the last to begin is the
        one with the gradient.
        """
        forward = self.trace.forward_operators
        backward = self.trace.backward_operators
        by_number: dict[tuple[object, int], list[ThreadInterval]] = defaultdict(list)
        for operator in sorted(forward, key=lambda operator: operator.begin):
            by_number[operator.thread, operator.number].append(operator)
        inside = dict(
            holding(self.spans, [(operator.begin, operator.thread) for operator in forward])
        )
        layer = {
            operator: inside[place][-1].name if inside[place] else self._embedding_or_head(operator)
            for place, operator in enumerate(forward)
        }
        threads = self._threads({operator.thread for operator in forward}, by_number)
        layer_of_operator = {}
        for place, operator in enumerate(backward):
            thread = threads.get(self.trace.forward_thread[place])
            candidates = [
                a for a in by_number.get((thread, operator.number), ()) if a.begin < operator.begin
            ]
            if candidates:
                layer_of_operator[operator] = layer[candidates[-1]]
        return layer_of_operator

    def _threads(
        self, threads: set[object], by_number: Mapping[tuple[object, int], Sequence[ThreadInterval]]
    ) -> dict[int, object]:
        """By autograd's number of a thread, the thread of the profile that ran the same
        operators.
        """
        votes: dict[int, Counter[object]] = defaultdict(Counter)
        for place, operator in enumerate(self.trace.backward_operators):
            for thread in threads:
                if (thread, operator.number) in by_number:
                    votes[self.trace.forward_thread[place]][thread] += 1
        return {number: counter.most_common(1)[0][0] for number, counter in votes.items()}
