"""How long each layer of a model computes, forward and backward, in a profile of PyTorch's.

A kernel belongs to the layer whose module (`with_modules` or `with_stack`), or whose
`record_function` of that name, launched it. A kernel of backward belongs to the layer of the
operator that it is the gradient of: autograd gives both one sequence number. What forward runs
before the first block is the embedding's, what it runs after the last one is the head's."""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from netsim.base.errors import InputError
from netsim.training.recorded import kineto
from netsim.training.recorded.kineto import Event, Events, Interval, args_of, events_of, holding

MODULE = re.compile(r"nn\.Module: (?P<kind>.+)_(?P<number>\d+)")
BACKWARD = "autograd::engine::evaluate_function"
BEFORE, AFTER = "embedding", "head"
Times = dict[str, tuple[float, float]]


def layer_times(path: Path, names: Sequence[str], blocks: Sequence[str], held: int) -> Times:
    """Seconds forward and backward, of one execution, by name of a layer of the model. `blocks` are
    those of `names` that are a transformer's blocks, `held` how many one rank has."""
    data = kineto.read_json(path)
    found = _Found(data["traceEvents"])
    spans = found.annotated(names) or found.modules(path, blocks, held)
    times = found.times(spans, ends=bool(blocks))
    if not any(sum(pair) for pair in times.values()):
        raise InputError(
            f"{path}: no kernel could be told to be a layer's",
            hint="profile CPU and CUDA together, with with_modules or with_stack, without graphs",
        )
    # Blocks that are on other ranks are as long as the mean of those that are here.
    here = [times[name] for name in blocks if name in times]
    if not here:
        return times
    ahead, back = (sum(pair[way] for pair in here) / len(here) for way in (0, 1))
    return {**dict.fromkeys(blocks, (ahead, back)), **times}


class _Found:
    def __init__(self, events: Sequence[object]) -> None:
        self.events: Events = events_of(events)
        self.spans: list[Interval] = []
        self.ahead: list[Interval] = []
        self.back: list[Interval] = []
        self.forward_thread: dict[int, int] = {}  # of each operator of backward, by its place
        for event in events:
            if isinstance(event, dict) and event.get("ph") == "X" and "dur" in event:
                self._add(event)

    def _add(self, event: Event) -> None:
        kind, name = str(event.get("cat", "")), str(event.get("name", ""))
        begin = float(event["ts"])
        number = args_of(event).get("Sequence number", -1)
        one = Interval(
            begin,
            begin + float(event["dur"]),
            event.get("tid"),
            name,
            number if isinstance(number, int) else -1,
        )
        if kind in ("python_function", "user_annotation"):
            self.spans.append(one)
        elif kind == "cpu_op" and name.startswith(BACKWARD):
            self.forward_thread[len(self.back)] = int(args_of(event).get("Fwd thread id", 0))
            self.back.append(one)
        elif kind == "cpu_op" and one.number >= 0 and not args_of(event).get("Fwd thread id"):
            self.ahead.append(one)

    def annotated(self, names: Sequence[str]) -> list[Interval]:
        """The `record_function`s that are called as layers are."""
        known = set(names)
        return [one for one in self.spans if one.name in known]

    def modules(self, path: Path, blocks: Sequence[str], held: int) -> list[Interval]:
        """The modules whose number is that of the blocks; of nested ones, the outermost."""
        kinds: dict[str, dict[int, list[Interval]]] = defaultdict(lambda: defaultdict(list))
        for one in self.spans:
            match = MODULE.fullmatch(one.name)
            if match:
                kinds[match["kind"]][int(match["number"])].append(one)
        counts = {len(blocks), held}
        fitting = {kind: found for kind, found in kinds.items() if len(found) in counts and blocks}
        if not fitting:
            some = ", ".join(f"{len(found)} {kind}" for kind, found in list(kinds.items())[:6])
            raise InputError(
                f"{path}: expected {held} modules of one kind, or record_functions called as "
                f"layers are ({blocks[0] if blocks else 'the names of the scenario'}, …), got "
                f"{some or 'no modules'}",
                hint="profile with with_modules=True or with_stack=True",
            )
        longest = {
            name: sum(one.end - one.begin for some in found.values() for one in some)
            for name, found in fitting.items()
        }
        kind = max(longest, key=longest.__getitem__)
        names = blocks if len(fitting[kind]) == len(blocks) else blocks[: len(fitting[kind])]
        return [
            Interval(one.begin, one.end, one.thread, names[place])
            for place, number in enumerate(sorted(fitting[kind]))
            for one in fitting[kind][number]
        ]

    def times(self, spans: Sequence[Interval], *, ends: bool) -> Times:
        """Seconds of an execution of every layer; with `ends`, of what is around them as well."""
        spans = self._in_steps(spans)
        within = dict(holding(self.back, [(one.begin, one.thread) for one in spans]))
        first = [one for number, one in enumerate(spans) if not within[number]]
        layers = _Layers(self, spans, first, ends=ends)
        runs = Counter(one.name for one in first)
        passes = max(runs.values(), default=1)
        spent: dict[tuple[str, int], float] = defaultdict(float)
        for layer, way, seconds in layers.kernels():
            spent[layer, way] += seconds
        return {
            layer: (spent[layer, 0] / times, spent[layer, 1] / times)
            for layer in dict.fromkeys(layer for layer, _ in spent)
            for times in [runs.get(layer, passes)]
        }

    def _in_steps(self, spans: Sequence[Interval]) -> list[Interval]:
        steps = list(self.events.steps.values())
        if not steps:
            return list(spans)
        return [one for one in spans if any(b <= one.begin and one.end <= e for b, e in steps)]


class _Layers:
    def __init__(
        self, found: _Found, spans: Sequence[Interval], first: Sequence[Interval], *, ends: bool
    ) -> None:
        self.found, self.spans, self.ends = found, spans, ends
        self.first = sorted(first, key=lambda one: one.begin)
        self.begins = [one.begin for one in self.first]
        self.backward = sorted(one.begin for one in found.back)
        self.of_number = self._numbers()

    def kernels(self) -> list[tuple[str, int, float]]:
        """Layer, 0 for forward or 1 for backward, and seconds of every kernel that is a layer's."""
        events = self.found.events
        ours = [one for one in events.kernels if not kineto.is_nccl(one)]
        launches = [events.launch_of(one) or (-1.0, None) for one in ours]
        tables = (self.found.back, self.spans, self.found.ahead)
        around = [dict(holding(table, launches)) for table in tables]
        made = []
        for number, kernel in enumerate(ours):
            back, span, ahead = (table[number] for table in around)
            layer, way = "", 0
            if back and not (span and span[-1].begin > back[-1].begin):
                layer, way = self.of_number.get(back[-1], ""), 1
            elif span and not back:
                layer = span[-1].name
            elif ahead and not back:
                layer = self._around(ahead[0])
            if layer:
                made.append((layer, way, float(kernel["dur"]) * 1e-6))
        return made

    def _around(self, operator: Interval) -> str:
        """The end of the model to which an operator outside of all blocks belongs."""
        if not self.ends or not self.first:
            return ""
        place = bisect_left(self.begins, operator.begin)
        if place == 0:
            return BEFORE
        gone = self.first[place - 1].end
        turn = bisect_left(self.backward, gone)
        over = turn < len(self.backward) and self.backward[turn] <= operator.begin
        if not over:
            return AFTER
        return BEFORE if place < len(self.first) else ""

    def _numbers(self) -> dict[Interval, str]:
        """The layer of each operator of backward: that of the forward operator of its number.
        Numbers are counted by thread. Operators that need no gradient show the number of the next
        one that does, which therefore is the last to begin."""
        ahead, back = self.found.ahead, self.found.back
        by_number: dict[tuple[object, int], list[Interval]] = defaultdict(list)
        for one in sorted(ahead, key=lambda one: one.begin):
            by_number[one.thread, one.number].append(one)
        inside = dict(holding(self.spans, [(one.begin, one.thread) for one in ahead]))
        layer = {
            one: inside[k][-1].name if inside[k] else self._around(one)
            for k, one in enumerate(ahead)
        }
        threads = self._threads({one.thread for one in ahead}, by_number)
        found = {}
        for place, one in enumerate(back):
            thread = threads.get(self.found.forward_thread[place])
            known = [a for a in by_number.get((thread, one.number), ()) if a.begin < one.begin]
            if known:
                found[one] = layer[known[-1]]
        return found

    def _threads(
        self, threads: set[object], by_number: Mapping[tuple[object, int], Sequence[Interval]]
    ) -> dict[int, object]:
        """The thread of each number by which autograd counts them: the one with its operators."""
        votes: dict[int, Counter[object]] = defaultdict(Counter)
        for place, one in enumerate(self.found.back):
            for thread in threads:
                if (thread, one.number) in by_number:
                    votes[self.found.forward_thread[place]][thread] += 1
        return {number: counter.most_common(1)[0][0] for number, counter in votes.items()}
