"""Senders that cost a receiver: by hand on both engines, what bounds, and what is refused."""

import pytest

from netsim.base.errors import InputError
from netsim.results.row import Row
from netsim.tasks.answer import answer, checked_cells, resolve_any
from netsim.tasks.explained import explained_run
from netsim.yamlio.read import parse_source

MIB = 2**20
EACH = 4 * MIB / (50e9 * 0.876) * 1e6  # us that a NIC needs to receive one message over EFA
ENGINES = ("simpy", "compiled")


def text_of(pairs: list[list[int]], incast: str, more: str = "", work: str = "direct") -> str:
    """Messages between hosts of a GPU and a NIC each."""
    fabric = f"{{kind: single-switch, transport: efa, incast: {incast}}}"
    return f"""cluster: {{machine: dgx-h100, nodes: 9, gpus_per_node: 1, nics_per_node: 1,
  fabric: {fabric}{more}}}
workload: {{collective: p2p, algorithm: {work}, pairs: {pairs}, sizes: [4MiB], timing: single}}
launch: {{style: process_per_gpu, host: 0s, kernel: 0s}}
"""


def row_of(text: str, engine: str = "auto", size: int = 4 * MIB) -> Row:
    (cell,) = checked_cells(parse_source(text, "x.yaml"))
    return answer(resolve_any(cell), size, engine=engine)


def time_of(pairs: list[list[int]], incast: str, engine: str = "auto", more: str = "") -> float:
    found = row_of(text_of(pairs, incast, more), engine).time_us
    assert found is not None
    return found


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("incast", "cost"), [("false", 0.0), ("25%", 0.25), ("true", 0.168)])
def test_each_of_k_senders_has_the_kth_of_what_is_left(
    engine: str, incast: str, cost: float
) -> None:
    latency = time_of([[1, 0]], "false", engine) - EACH
    for senders in (1, 2, 5, 8):
        pairs = [[sender, 0] for sender in range(1, senders + 1)]
        needed = senders * EACH * (1 + cost * (senders - 1))
        assert time_of(pairs, incast, engine) == pytest.approx(latency + needed, rel=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_who_is_left_has_it_all_again_and_own_messages_are_one_sender(engine: str) -> None:
    latency = time_of([[1, 0]], "false", engine) - EACH
    # Host 1 sends twice as much: two messages at once, of which each has half of its part.
    three = time_of([[1, 0], [1, 0], [2, 0]], "25%", engine)
    assert three == pytest.approx(latency + 3 * EACH * 1.25, rel=1e-9)
    assert time_of([[1, 0], [1, 0]], "25%", engine) == pytest.approx(latency + 2 * EACH, rel=1e-9)
    # To others it sends meanwhile what host 0 leaves of its NIC.
    away = time_of([[1, 0], [2, 0], [1, 3]], "100%", engine)
    assert away == pytest.approx(latency + 2 * EACH * 2, rel=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_nic_that_slows_has_less_for_its_senders_too(engine: str) -> None:
    latency = time_of([[1, 0]], "false", engine) - EACH
    fault = ", faults: [{link: switch0-node0.nic0, bandwidth: 50%, at: 0s, for: 1s}]"
    slow = time_of([[1, 0], [2, 0]], "25%", engine, fault)
    assert slow == pytest.approx(latency + 2 * 2 * EACH * 1.25, rel=1e-9)


def test_a_ring_has_one_sender_a_nic_and_pays_nothing() -> None:
    ring = "collective: all_reduce, algorithm: ring"
    whole = text_of([], "true").replace("collective: p2p, algorithm: direct, pairs: []", ring)
    whole = whole.replace("4MiB", "9MiB")  # which its ranks have equal parts of
    both = (whole, whole.replace("incast: true", "incast: false"))
    rows = [row_of(text, size=9 * MIB) for text in both]
    assert rows[0].time_us == pytest.approx(rows[1].time_us, rel=1e-9)
    assert (rows[0].rows or 0) > (rows[1].rows or 0)  # nobody stands for others who are counted


@pytest.mark.slow
@pytest.mark.parametrize("work", ["auto", "direct"])
def test_what_bounds_is_named_and_both_engines_agree(work: str) -> None:
    pairs = [[sender, to] for sender in (4, 5, 6) for to in (0, 1, 2)]
    text = text_of(pairs, "true", work=work)
    rows = [row_of(text, engine) for engine in ENGINES]
    assert rows[0].time_us == pytest.approx(rows[1].time_us, rel=1e-9)
    assert [row.bound_by.partition("ingress")[0] for row in rows] == ["incast on NIC "] * 2
    (cell,) = checked_cells(parse_source(text, "x.yaml"))
    ready = resolve_any(cell)
    found, program, _ = explained_run(ready, 4 * MIB)  # type: ignore[arg-type]
    assert found["bound_by"] == rows[1].bound_by
    assert found["links"][0]["class"] == "incast on NIC ingress"
    assert len(program.links.incast_steps) == 3


@pytest.mark.parametrize(
    ("incast", "message"),
    [
        ("-5%", "cannot be negative"),
        ("200%", "expected true or false or at most 1"),
        ("5us", "expected true or false or a ratio"),
        ("ture", "expected true or false or a ratio"),
        ("true, transport: roce", "nobody measured what senders cost each other on roce"),
    ],
)
def test_what_cannot_be_is_refused(incast: str, message: str) -> None:
    text = text_of([[1, 0]], incast)
    if "roce" in incast:
        text = text.replace("transport: efa, ", "")
    with pytest.raises(InputError, match=r"x\.yaml:2") as caught:
        row_of(text)
    assert message in str(caught.value)
    with pytest.raises(InputError, match="did you mean incast"):
        row_of(text_of([[1, 0]], "10%").replace("incast:", "incats:"))
