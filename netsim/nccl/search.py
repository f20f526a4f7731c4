"""NCCL's channel search on one node: how many channels, how fast, over which GPUs and NICs.

Starts from the best that could be and relaxes one wish after the other until channels are found,
then doubles them or speeds them up. Cost depends on one node only, never on how many there are.
"""

from dataclasses import replace

from netsim.nccl.arena import Arena, total_bandwidth, widest_path
from netsim.nccl.attempt import Attempt, Budget, Found
from netsim.nccl.bounds import hopeless
from netsim.nccl.channels import (
    BALANCED_TREE,
    COLLNET_DIRECT,
    NVLS,
    RING,
    TREE,
    Channel,
    ChannelGraph,
)
from netsim.nccl.facts import architecture
from netsim.nccl.likeness import Likeness, kinds_of, likeness
from netsim.nccl.settings import NO_SETTINGS, Settings
from netsim.nccl.walk import Walker
from netsim.values import dataclass

ALL_VISITS = 1 << 19
VISITS = 1 << 14
VISITS_SAME = 1 << 8
MOST_COLLNET_HEADS = 8
FALLBACK_SPEED = 0.1  # GB/s, of the plain order that stands in where nothing was found


@dataclass(frozen=True)
class Request:
    """Which graph is searched: a pattern, and how many channels it needs and may have."""

    pattern: int
    min_channels: int
    max_channels: int
    collnet: bool = False


def search(arena: Arena, request: Request, settings: Settings = NO_SETTINGS) -> ChannelGraph:
    """The graph that NCCL finds for a request, with the order of all its channels."""
    request = _fitted(arena, request)
    if request.pattern == NVLS and (not arena.switches or arena.min_cc < 90):
        return _nothing(arena, request)
    ladder = _Ladder(arena, request, settings)
    ladder.relax()
    ladder.double()
    ladder.speed_up()
    return _graph(arena, request, ladder.found)


def _fitted(arena: Arena, request: Request) -> Request:
    """The request within what a pattern can have: NVLS and CollNet one head a GPU at most."""
    gpus, pattern, most = len(arena.gpus), request.pattern, request.max_channels
    if pattern == NVLS:
        most = min(arena.facts.nvls_heads, gpus)
    if pattern == COLLNET_DIRECT:
        most = min(MOST_COLLNET_HEADS, gpus)
    if gpus == 1 and pattern != RING:
        pattern = TREE
    least = most if pattern == NVLS and not arena.nets else request.min_channels
    return replace(request, pattern=pattern, min_channels=least, max_channels=most)


class _Ladder:
    """The state of one search: what is tried now, what was found, and what effort is left."""

    def __init__(self, arena: Arena, request: Request, settings: Settings) -> None:
        self.arena, self.request = arena, request
        row = arena.facts.inter_speeds if arena.nets else arena.facts.intra_speeds
        self.speeds = row[architecture(arena.min_cc, row)]
        self.widest, self.total = widest_path(arena), total_bandwidth(arena)
        self.types = _type_limits(arena)
        self.cross_nic = settings.cross_nic if len(arena.nets) > 1 else 0
        self.rung = self._first_rung()
        self.start = Attempt(
            pattern=request.pattern,
            bw_intra=self.speeds[self.rung],
            bw_inter=self.speeds[self.rung],
            type_intra=self.types[0],
            type_inter=self.types[2],
            same_channels=request.pattern != NVLS,
            cross_nic=int(self.cross_nic == 1),
            min_channels=request.min_channels,
            max_channels=request.max_channels,
            collnet=request.collnet,
        )
        self.now = self.start
        self.found = Found(replace(self.start, bw_intra=0.0, bw_inter=0.0))
        self.effort = ALL_VISITS
        self.deferred: list[Attempt] = []
        self.walked: dict[Likeness, int] = {}
        self.kinds = kinds_of(arena)

    def _first_rung(self) -> int:
        """The first speed that one path and one GPU could carry at all."""
        gpus, total = len(self.arena.gpus), self.total
        if gpus > 1 and self.request.pattern != RING:
            total *= gpus / (gpus - 1)
        for rung, speed in enumerate(self.speeds):
            if speed <= self.widest and speed * self.request.min_channels <= total:
                return rung
        return len(self.speeds) - 1

    def relax(self) -> None:
        """Pass 1: try the present wishes; while they cannot be met, give up one of them."""
        while True:
            budget = self._try()
            if budget.complete or self._saturated():
                return
            following = self._relaxed(budget)
            if following is None:
                return
            self.now = following

    def _try(self) -> Budget:
        """Walk the present attempt, or put it off where it cannot improve on what was found."""
        full = VISITS_SAME if self.now.same_channels else VISITS
        if hopeless(self.arena, self.now, self.found):
            self.deferred.append(self.now)
            self.effort -= full
            return Budget(0)
        if self.deferred and self.effort < 0 and self.found.n_channels:
            self._settle()
            if self.effort < 0:
                return Budget(-1)
        self.effort -= full
        return self._walk(self.now)

    def _walk(self, attempt: Attempt) -> Budget:
        # The same walk again could not do better than it did.
        alike = likeness(self.arena, self.kinds, attempt)
        if alike in self.walked:
            return Budget(self.walked[alike])
        budget = Budget(VISITS_SAME if attempt.same_channels else VISITS)
        self.found = Walker(self.arena, attempt, self.found).run(budget)
        self.walked[alike] = budget.left
        return budget

    def _settle(self) -> None:
        """Count what the attempts put off would have left of the effort, by walking them."""
        for attempt in self.deferred:
            left = self._walk(attempt).left
            if not attempt.same_channels or self._keeps_channels(attempt):
                self.effort += left
        self.deferred.clear()

    def _keeps_channels(self, attempt: Attempt) -> bool:
        sockets = attempt.type_intra == self.arena.facts.rank("SYS")
        return self.arena.cpu == ("x86_64", "AMD") and sockets

    def _saturated(self) -> bool:
        return self.found.n_channels * self.found.attempt.bw_inter >= self.total

    def _relaxed(self, budget: Budget) -> Attempt | None:
        """The next attempt, wish by wish like the digits of a counter, or nothing at the end."""
        now, start = self.now, self.start
        if now.same_channels and not self._keeps_channels(now):
            return replace(now, same_channels=False)
        now = replace(now, same_channels=start.same_channels)
        self.effort += budget.left
        if self.effort < 0 and self.found.n_channels and not self.deferred:
            return None
        if self.arena.min_cc >= 90 and now.pattern == BALANCED_TREE:
            return replace(now, pattern=TREE)
        now = replace(now, pattern=start.pattern)
        if now.type_intra < self._widest_intra(now) and self._unsolved(now.type_intra, intra=True):
            return replace(now, type_intra=now.type_intra + 1)
        now = replace(now, type_intra=start.type_intra)
        if self.arena.nets and now.type_inter < self.types[3] and self._may_widen(now):
            return replace(now, type_inter=now.type_inter + 1)
        now = replace(now, type_inter=start.type_inter)
        rails = self.cross_nic == 2 and now.cross_nic == 0
        if rails and self.request.pattern in (RING, BALANCED_TREE):
            return replace(now, cross_nic=2)
        return self._slower(replace(now, cross_nic=start.cross_nic))

    def _widest_intra(self, now: Attempt) -> int:
        return now.type_inter if self.arena.nets else self.types[1]

    def _unsolved(self, kind: int, *, intra: bool) -> bool:
        """Whether a worse path type could still be an improvement on what was found."""
        best = self.found.attempt
        return not self.found.n_channels or kind < (best.type_intra if intra else best.type_inter)

    def _may_widen(self, now: Attempt) -> bool:
        near = now.type_inter < self.arena.facts.rank("PXN")
        return near or self._unsolved(now.type_inter, intra=False)

    def _slower(self, now: Attempt) -> Attempt | None:
        """The next lower speed, as long as it could carry nearly half of what was found."""
        if self.rung + 1 >= len(self.speeds):
            return None
        speed = self.speeds[self.rung + 1]
        if self.found.n_channels and speed / self.found.attempt.bw_inter <= 0.49:
            return None
        self.rung += 1
        return replace(now, bw_intra=speed, bw_inter=speed)

    def double(self) -> None:
        """Split wide channels in two, so that more SMs share the work."""
        found, count = self.found, self.found.n_channels
        intra, most = found.attempt.bw_intra, self.request.max_channels
        hopper_full = self.arena.min_cc > 80 and intra < 50 and count > 4
        if not count or self.request.pattern == NVLS or intra < 25 or hopper_full:
            return
        doubled = (found.channels * 2)[:most]
        parts = -(-len(doubled) // count)
        inter = found.attempt.bw_inter / parts
        attempt = replace(found.attempt, bw_intra=intra / parts, bw_inter=inter)
        self.found = replace(found, channels=doubled, attempt=attempt)

    def speed_up(self) -> None:
        """Pass 2: with the number of channels settled, try higher speeds."""
        best = self.found.attempt
        fitting = (rung for rung, speed in enumerate(self.speeds) if speed <= best.bw_inter)
        self.rung = next(fitting, len(self.speeds) - 1)
        speed, count = self.speeds[self.rung], self.found.n_channels
        self.now = replace(best, bw_intra=speed, bw_inter=speed, min_channels=count)
        self.walked.clear()
        budget = Budget(1)
        while self.rung > 0 and (budget.complete or budget.left > 0):
            following = self._faster(self.speeds[self.rung - 1])
            if following is None:
                return
            self.now = following
            self.rung -= 1
            budget = self._walk(self.now)

    def _faster(self, speed: float) -> Attempt | None:
        now, best = self.now, self.found.attempt
        if best.pattern == RING:
            return replace(now, bw_intra=speed, bw_inter=speed)
        if best.pattern == NVLS and now.bw_inter == best.bw_inter < now.bw_intra * 2:
            count = self.found.n_channels
            return replace(now, bw_inter=speed, min_channels=count, max_channels=count)
        if now.bw_intra == best.bw_intra < now.bw_inter * 2:
            return replace(now, bw_intra=speed)
        return None


def _type_limits(arena: Arena) -> tuple[int, int, int, int]:
    """Best and worst path type among GPUs, then between GPUs and ports."""
    rank = arena.facts.rank
    inside = [arena.type_of(one, two) for one in arena.gpus for two in arena.gpus if one != two]
    outside = [arena.type_of(gpu, net) for gpu in arena.gpus for net in arena.nets]
    outside += [arena.type_of(net, gpu) for gpu in arena.gpus for net in arena.nets]
    least, most = (min(inside), max(inside)) if inside else (rank("LOC"), rank("SYS"))
    near, far = (min(outside), max(outside)) if outside else (rank("PIX"), rank("SYS"))
    return least, min(most, rank("SYS")), near, min(far, rank("SYS"))


def _nothing(arena: Arena, request: Request) -> ChannelGraph:
    return ChannelGraph(request.pattern, 0, 0.0, 0.0, "DIS", "DIS", same_channels=False)


def _graph(arena: Arena, request: Request, found: Found) -> ChannelGraph:
    attempt, types = found.attempt, arena.facts.path_types
    if not found.n_channels and (request.collnet or request.pattern == NVLS):
        return _nothing(arena, request)
    if not found.n_channels:
        plain = Channel(tuple(range(len(arena.gpus))), (0, 0) if arena.nets else None)
        slow = FALLBACK_SPEED
        return ChannelGraph(request.pattern, 1, slow, slow, "SYS", "SYS", True, channels=(plain,))
    return ChannelGraph(
        pattern=attempt.pattern,
        n_channels=found.n_channels,
        bw_intra=attempt.bw_intra,
        bw_inter=attempt.bw_inter,
        type_intra=types[attempt.type_intra],
        type_inter=types[attempt.type_inter],
        same_channels=attempt.same_channels,
        cross_nic=attempt.cross_nic,
        latency_inter=found.latency_inter,
        channels=found.channels,
    )
