"""A collective has whole numbers; what memory has no room for is an error in words."""

import pickle

import numpy as np
import pytest

import netsim
from netsim.collectives.collective import Collective, CollectiveError
from netsim.collectives.table import ALGORITHMS, TooLargeError, build
from netsim.engines.engine import simulate
from netsim.scenario.cells import expand_all
from netsim.tasks.resolve import resolve
from netsim.yamlio.read import parse_source


@pytest.mark.parametrize("value", [1.5, "8", None, True, 8.0, np.float64(8), float("nan")])
@pytest.mark.parametrize("name", ["ranks", "count", "element_bytes", "root"])
def test_what_is_no_whole_number_is_refused(name: str, value: object) -> None:
    given: dict[str, object] = {"ranks": 4, "count": 8, name: value}
    with pytest.raises(CollectiveError, match=f"{name}: expected a whole number of "):
        Collective("all_reduce", **given)  # type: ignore[arg-type]


def test_whole_numbers_of_numpy_become_those_of_python() -> None:
    found = Collective("all_reduce", ranks=np.int32(4), count=np.int64(8))  # type: ignore[arg-type]
    assert (type(found.ranks), type(found.count)) == (int, int)
    assert found == Collective("all_reduce", ranks=4, count=8)


def test_more_bytes_than_64_bit_offsets_have_is_refused() -> None:
    with pytest.raises(CollectiveError, match="count: expected at most"):
        Collective("all_reduce", ranks=4, count=2**80)


def test_a_schedule_without_room_is_an_error_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(collective: Collective) -> None:
        raise MemoryError("Unable to allocate 7.28 TiB")

    monkeypatch.setitem(ALGORITHMS["all_reduce"], "ring", write)
    with pytest.raises(TooLargeError, match=r"ring all_reduce on 1,000,000 ranks has more") as told:
        build(Collective("all_reduce", ranks=10**6, count=8), "ring")
    assert isinstance(told.value, MemoryError)
    assert isinstance(told.value, netsim.NetsimError)


def test_a_program_survives_a_pickle() -> None:
    text = (
        "cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}\n"
        "workload: {collective: all_reduce, algorithm: ring, sizes: [1KiB]}\n"
    )
    resolved = resolve(expand_all(parse_source(text, "s.yaml")).cells[0])
    schedule = build(Collective("all_reduce", ranks=4, count=256), "ring")
    program = netsim.place(schedule, resolved.topology, resolved.gpus.tolist())
    copy = pickle.loads(pickle.dumps(program))
    links = range(len(program.links))
    assert [copy.links.name(k) for k in links] == [program.links.name(k) for k in links]
    assert [copy.links.kind(k) for k in links] == [program.links.kind(k) for k in links]
    ends = [simulate(one, "simpy").end.tolist() for one in (program, copy)]
    assert ends[0] == ends[1]
