"""On a non-blocking switch with latency a and bandwidth B, algorithms take what textbooks say."""

from collections.abc import Callable
from math import ceil, log2

import pytest

from netsim.collectives.collective import Collective
from netsim.collectives.table import build
from netsim.engines.engine import simulate
from netsim.program.place import place
from netsim.topology.routing import switch

ALPHA, BANDWIDTH = 1.7e-6, 12.5e9
COUNT = 1_441_440  # divides by every n below
ANY = (2, 3, 4, 5, 7, 8, 12, 16)
POWERS = (2, 4, 8, 16, 32)

# Seconds from ranks n, latency a and d, the time of `count` elements on one link.
Form = Callable[[int, float, float], float]
FORMS: list[tuple[str, str, dict[str, object], tuple[int, ...], Form]] = [
    ("all_reduce", "ring", {}, ANY, lambda n, a, d: 2 * (n - 1) * (a + d / n)),
    (
        "all_reduce",
        "halving-doubling",
        {},
        POWERS,
        lambda n, a, d: 2 * (log2(n) * a + (n - 1) / n * d),
    ),
    ("all_reduce", "tree", {}, POWERS, lambda n, a, d: 2 * log2(n) * (a + d)),
    ("all_reduce", "direct", {}, ANY, lambda n, a, d: a + (n - 1) * d),
    ("all_reduce", "parameter-server", {}, ANY, lambda n, a, d: 2 * (a + (n - 1) * d)),
    (
        "all_reduce",
        "parameter-server",
        {"sharded": True},
        ANY,
        lambda n, a, d: 2 * (a + (n - 1) / n * d),
    ),
    ("all_gather", "ring", {}, ANY, lambda n, a, d: (n - 1) * (a + d)),
    ("all_gather", "recursive-doubling", {}, POWERS, lambda n, a, d: log2(n) * a + (n - 1) * d),
    ("all_gather", "bruck", {}, ANY, lambda n, a, d: ceil(log2(n)) * a + (n - 1) * d),
    ("all_gather", "direct", {}, ANY, lambda n, a, d: a + (n - 1) * d),
    ("reduce_scatter", "ring", {}, ANY, lambda n, a, d: (n - 1) * (a + d)),
    ("reduce_scatter", "recursive-halving", {}, POWERS, lambda n, a, d: log2(n) * a + (n - 1) * d),
    ("reduce_scatter", "direct", {}, ANY, lambda n, a, d: a + (n - 1) * d),
    ("broadcast", "binomial", {}, POWERS, lambda n, a, d: log2(n) * (a + d)),
    (
        "broadcast",
        "ring",
        {"chunks": 11},
        ANY,
        lambda n, a, d: (n - 1) * (a + d / 11) + 10 * d / 11,
    ),
    ("reduce", "binomial", {}, POWERS, lambda n, a, d: log2(n) * (a + d)),
    ("reduce", "ring", {"chunks": 11}, ANY, lambda n, a, d: (n - 1) * (a + d / 11) + 10 * d / 11),
    ("gather", "linear", {}, ANY, lambda n, a, d: a + (n - 1) * d),
    ("gather", "binomial", {}, POWERS, lambda n, a, d: log2(n) * a + (n - 1) * d),
    ("scatter", "linear", {}, ANY, lambda n, a, d: a + (n - 1) * d),
    ("scatter", "binomial", {}, POWERS, lambda n, a, d: log2(n) * a + (n - 1) * d),
    ("alltoall", "linear-shift", {}, ANY, lambda n, a, d: a + (n - 1) * d),
    ("alltoall", "pairwise", {}, ANY, lambda n, a, d: (n - 1) * (a + d)),
    ("alltoall", "bruck", {}, POWERS, lambda n, a, d: log2(n) * (a + n / 2 * d)),
    ("sendrecv", "ring", {}, ANY, lambda n, a, d: a + d),
    ("barrier", "dissemination", {}, ANY, lambda n, a, d: ceil(log2(n)) * a),
]
CASES = [(*form[:3], n, form[4]) for form in FORMS for n in form[3]]


@pytest.mark.sample(33)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "algorithm", "parameters", "n", "form"),
    CASES,
    ids=[f"{c[0]}-{c[1]}{'-' + next(iter(c[2])) if c[2] else ''}-{c[3]}" for c in CASES],
)
def test_time_on_a_switch(name, algorithm, parameters, n: int, form: Form) -> None:
    collective = Collective(name, n, 0 if name == "barrier" else COUNT, 4)
    program = place(build(collective, algorithm, **parameters), switch(n, BANDWIDTH, ALPHA))
    seconds = form(n, ALPHA, COUNT * 4 / BANDWIDTH)
    assert simulate(program, "simpy").makespan == pytest.approx(seconds, rel=1e-9)
