"""Jobs beside each other: by hand, on both engines, and what is refused."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from netsim.base.errors import InputError
from netsim.results.row import Row
from netsim.tasks import jobs
from netsim.tasks.answer import answer, checked_cells, resolve_any
from netsim.tasks.jobs import resolve_jobs
from netsim.yamlio.read import Source, parse_source
from tests.cli.command import netsim

GB = 1e9


def sends(size: int, pairs: list[list[int]]) -> dict[str, Any]:
    """Plain messages from rank to rank."""
    return {"collective": "p2p", "algorithm": "direct", "pairs": pairs, "sizes": [size]}


def star(jobs: list[dict[str, Any]], **more: Any) -> Source:
    """Four GPUs on two leaves with 100 GB/s each, joined by one spine with 100 GB/s a leaf."""
    ends = [("a", "left"), ("b", "left"), ("c", "right"), ("d", "right")]
    names = [{"name": name} for name, _ in ends]
    names += [{"name": name, "kind": "switch"} for name in ("left", "right", "spine")]
    links = [*ends, ("left", "spine"), ("right", "spine")]
    graph = {
        "nodes": names,
        "links": [{"from": a, "to": b, "bandwidth": "100GB/s"} for a, b in links],
    }
    return Source("star", {"name": "star", "cluster": {"graph": graph}, "jobs": jobs, **more})


def rows_of(source: Source, engine: str = "auto") -> dict[str, Row]:
    """The row of every job."""
    return {
        str(cell.axes.get("job", "")): answer(resolve_any(cell), size, engine=engine)
        for cell in checked_cells(source)
        for size in cell.scenario.workload.size_list()
    }


ENGINES = ("simpy", "compiled")


@pytest.mark.parametrize("engine", ENGINES)
def test_on_a_shared_link_rates_are_max_min(engine: str) -> None:
    # Both cross the spine: 50 GB/s each, until the first is done at 40 us; then 100 GB/s.
    jobs = [
        {"name": "x", "placement": [0, 2], "workload": sends(2_000_000, [[0, 1]]), "repeat": 1},
        {"name": "y", "placement": [1, 3], "workload": sends(6_000_000, [[0, 1]]), "repeat": 1},
    ]
    rows = rows_of(star(jobs), engine)
    assert rows["x"].alone_us == pytest.approx(20, rel=1e-9)
    assert rows["x"].time_us == pytest.approx(40, rel=1e-9)
    assert rows["x"].slowdown == pytest.approx(2, rel=1e-9)
    assert rows["y"].time_us == pytest.approx(40 + 40, rel=1e-9)
    assert rows["y"].neighbours["by:x"] == pytest.approx(80 / 60, rel=1e-9)
    assert rows["y"].neighbours["on:x"] in ("left->spine", "spine->right")


@pytest.mark.parametrize("engine", ENGINES)
def test_equal_jobs_slow_each_other_alike_and_no_more_fit_than_hosts(engine: str) -> None:
    jobs = [
        {"name": "x", "placement": [0, 2], "workload": sends(2_000_000, [[0, 1]])},
        {"name": "y", "placement": [1, 3], "workload": sends(2_000_000, [[0, 1]])},
    ]
    apart = {"name": "z", "workload": sends(1_000_000, [[0, 0]])}
    with pytest.raises(InputError, match="asks for some hosts, but 0 are there"):
        rows_of(star([*jobs, apart]), engine)
    rows = rows_of(star(jobs), engine)
    assert rows["x"].slowdown == rows["y"].slowdown == pytest.approx(2, rel=1e-9)


def test_jobs_on_leaves_of_their_own_do_not_touch() -> None:
    jobs = [
        {"name": "x", "placement": [0, 1], "workload": sends(2_000_000, [[0, 1], [1, 0]])},
        {"name": "y", "placement": [2, 3], "workload": sends(6_000_000, [[0, 1]])},
    ]
    for engine in ENGINES:
        for row in rows_of(star(jobs), engine).values():
            assert row.slowdown == pytest.approx(1, rel=1e-9)


def test_a_start_and_a_number_of_times_are_kept() -> None:
    # x has the link for 10 us, shares it for as long as y takes, and goes on alone.
    jobs = [
        {"name": "x", "placement": [0, 2], "workload": sends(1_000_000, [[0, 1]]), "repeat": 4},
        {"name": "y", "placement": [1, 3], "workload": sends(500_000, [[0, 1]]), "start": "10us"},
    ]
    jobs[1]["repeat"] = 1
    rows = rows_of(star(jobs))
    assert rows["y"].time_us == pytest.approx(10, rel=1e-9)
    assert rows["x"].time_us == pytest.approx((40 + 5) / 4, rel=1e-9)
    assert rows["x"].alone_us == pytest.approx(10, rel=1e-9)


def test_a_job_without_a_number_goes_on_as_long_as_the_longest() -> None:
    jobs = [
        {"name": "x", "placement": [0, 2], "workload": sends(1_000_000, [[0, 1]])},
        {"name": "y", "placement": [1, 3], "workload": sends(3_500_000, [[0, 1]])},
    ]
    assert rows_of(star(jobs))["x"].neighbours["repeat"] == 4


def hosts(text: str) -> Source:
    """A cluster of hosts with NICs: leaves of two."""
    return parse_source(
        "cluster: {machine: dgx-h100, nodes: 4, gpus_per_node: 2, nics_per_node: 2,\n"
        "  fabric: {kind: leaf-spine, nodes_per_leaf: 2, oversubscription: 2}}\n" + text,
        "x.yaml",
    )


COLLECTIVES = """jobs:
  - {name: a, nodes: 2, placement: %s, workload: {collective: all_reduce, sizes: [1MiB]}}
  - {name: b, nodes: 2, workload: {collective: all_gather, algorithm: ring, sizes: [1MiB, 2MiB]}}
"""


@pytest.mark.slow
def test_nccl_beside_a_textbook_algorithm_on_both_engines_and_in_step() -> None:
    source = hosts(COLLECTIVES % "spread")
    both = [rows_of(source, engine) for engine in ENGINES]
    for name in ("a", "b"):
        one, other = (rows[name] for rows in both)
        assert one.time_us == pytest.approx(other.time_us, rel=1e-9)
        assert one.alone_us == pytest.approx(other.alone_us, rel=1e-9)
        assert (one.nodes, one.ranks) == (2, 4)
    assert both[0]["b"].size_bytes == 2 * 2**20  # of which a has none: it goes on with its last
    contiguous = rows_of(hosts(COLLECTIVES % "contiguous"))
    assert all(row.slowdown == pytest.approx(1, rel=1e-9) for row in contiguous.values())


def test_a_job_alone_takes_what_its_first_operation_takes() -> None:
    """It is the same program as a cell that is timed from standstill."""
    jobs = [{"name": "a", "nodes": 2, "repeat": 1, "workload": sends(2_000_000, [[0, 1]])}]
    (row,) = rows_of(star(jobs)).values()
    assert row.slowdown == 1
    assert row.time_us == pytest.approx(20, rel=1e-9)


@pytest.mark.slow
def test_a_training_step_beside_an_all_reduce() -> None:
    text = """jobs:
  - {name: step, placement: [0, 2], workload: {model: bert-base, batch: 8, sequence: 256}}
  - name: noise
    placement: [1, 3]
    workload: {collective: all_reduce, algorithm: ring, sizes: [8MiB]}
"""
    rows = [rows_of(hosts(text), engine) for engine in ENGINES]
    for one, other in zip(rows[0].values(), rows[1].values(), strict=True):
        assert one.slowdown == pytest.approx(other.slowdown, rel=1e-9)
    step = rows[0]["step"]
    assert step.workload == "training bert-base"
    assert step.step_time_us is not None
    assert step.slowdown >= 1


BESIDE = """workload: {collective: all_reduce, algorithm: ring, sizes: [256KiB]}
background: [{pattern: %s, load: 50%%, size: 64KiB, seed: 3}]
"""


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["uniform", "permutation", "incast", "hotspot"])
def test_a_background_slows_and_is_the_same_again(pattern: str) -> None:
    source = hosts(BESIDE % pattern)
    rows = [rows_of(source, engine)[""] for engine in ENGINES]
    assert rows[0].time_us == pytest.approx(rows[1].time_us, rel=1e-9)
    assert rows[0].slowdown > 1.001
    assert rows[0].neighbours["by:background"] == rows[0].slowdown
    took = [rows[0].neighbours[f"message_p{q}_us"] for q in (50, 99)]
    assert took == pytest.approx([rows[1].neighbours[f"message_p{q}_us"] for q in (50, 99)])
    alone = 65536 / (50e9 * 0.982) * 1e6  # at the rate of a NIC
    assert alone < took[0] < took[1]
    assert rows[0].neighbours["messages"] > 10


@pytest.mark.slow
def test_a_job_may_begin_with_what_a_background_is_called() -> None:
    text = """jobs:
  - {name: NAME, placement: [0, 1], workload: {collective: all_reduce, sizes: [256KiB]}}
background: [{pattern: uniform, load: 30%, size: 64KiB, hosts: unused, seed: 3}]
"""
    named = [rows_of(hosts(text.replace("NAME", name))) for name in ("a", "background-2")]
    counts = [next(iter(rows.values())).neighbours["messages"] for rows in named]
    assert counts[0] == counts[1] > 0
    with pytest.raises(InputError, match="the background is called that"):
        rows_of(hosts(text.replace("NAME", "background")))


def test_a_background_of_hosts_that_nobody_uses_and_its_load() -> None:
    text = """jobs:
  - {name: a, placement: [0, 1], workload: {collective: all_reduce, sizes: [1MiB]}}
background: [{pattern: uniform, load: 30%, size: 64KiB, hosts: unused}]
"""
    (row,) = rows_of(hosts(text)).values()
    assert row.slowdown == pytest.approx(1, rel=1e-9)  # these have a leaf of their own


def test_messages_begin_as_often_as_their_load_says() -> None:
    (cell,) = checked_cells(hosts(BESIDE % "permutation"))
    ready = resolve_jobs(cell)
    sent = ready.messages[0](0.02).schedule
    rate = 2 * ready.topology.links.bandwidth[ready.topology.links.kind == 6].max()
    assert sent.amount.sum() / 0.02 / 4 == pytest.approx(0.5 * rate, rel=0.05)
    assert (sent.src != sent.dst).all()


BAD = {
    "placement: [0, 1]}, {name: b, placement: [1, 2]": "host 1 is one of job a already",
    "placement: [0, 0]": "host 0 is one of job a already",
    "placement: [0, 7]": "there is no host 7: the cluster has hosts 0 to 3",
    "nodes: 5": "job a asks for 5 hosts, but 4 are there",
    "nodes: 1}, {name: a, nodes: 1": "two jobs are called a",
    "nodes: 3, placement: [0, 1]": "job a asks for 3 hosts, but 2 are there",
    "nodes: 1, placement: spraed": "did you mean spread",
    "nodes: 1, start: -1s": "start",
}


@pytest.mark.parametrize("text", BAD)
def test_jobs_that_do_not_fit_are_refused_in_a_line(text: str) -> None:
    work = "workload: {collective: all_reduce, algorithm: ring, sizes: [1MiB]}"
    jobs = text.replace("}, {", f", {work}}}, {{")
    with pytest.raises(InputError, match=r"x\.yaml") as caught:
        checked_cells(hosts(f"jobs: [{{name: a, {jobs}, {work}}}]\n"))
    assert BAD[text] in str(caught.value)


WORSE = {
    "{pattern: uniform, load: -10%}": "cannot be negative",
    "{pattern: uniform, load: 110%}": "load",
    "{pattern: incats, load: 10%}": "did you mean incast",
    "{pattern: incast, load: 10%, hosts: [2]}": "an incast onto itself",
    "{pattern: uniform, load: 10%, hosts: unused}": "nobody to send to",
    "{pattern: incast, load: 10%, target: 9}": "there is no host 9",
    "{pattern: incast, load: 10%, hosts: [1, 2], target: 3}": "host 3 is none of its hosts",
    "{pattern: uniform, load: 10%, target: 3}": "uniform has none",
}


@pytest.mark.parametrize("text", WORSE)
def test_a_background_that_cannot_be_is_refused_in_a_line(text: str) -> None:
    work = "workload: {collective: all_reduce, algorithm: ring, sizes: [1MiB]}"
    with pytest.raises(InputError, match=r"x\.yaml") as caught:
        checked_cells(hosts(f"{work}\nbackground: [{text}]\n"))
    assert WORSE[text] in str(caught.value)


def test_errors_of_a_workload_have_its_line() -> None:
    text = "jobs:\n  - {name: a, nodes: 1, workload: {collective: all_reduce, sizes: [1]}}\n"
    text += "  - name: b\n    nodes: 1\n    workload: {collective: all_reduse}\n"
    with pytest.raises(InputError, match=r"x.yaml:7:\d+: jobs.1.workload.collective.*all_reduce"):
        checked_cells(hosts(text))
    with pytest.raises(InputError, match="stands in jobs"):
        checked_cells(hosts("workload: {collective: all_reduce}\n" + COLLECTIVES % "spread"))


@pytest.mark.slow
def test_a_run_writes_who_slows_whom(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    apart = {"jobs.0.placement": [0, 1], "jobs.1.placement": [2, 3]}
    data = star(
        [
            {"name": "x", "placement": [0, 2], "workload": sends(2_000_000, [[0, 1]])},
            {"name": "y", "placement": [1, 3], "workload": sends(6_000_000, [[0, 1]])},
        ],
        outputs=["csv", "plots", "trace", "report"],
        sweep={"variants": {"placement": {"mixed": {}, "apart": apart}}},
    ).data
    Path("two.yaml").write_text(yaml.safe_dump(data))
    done = netsim(capsys, "run", "two.yaml", "-o", "out")
    assert done.code == 0, done.err
    assert "slowdown" in done.out
    with open("out/interference.csv", newline="") as file:
        rows = {(row["axis:placement"], row["axis:job"]): row for row in csv.DictReader(file)}
    assert float(rows["mixed", "x"]["by:y"]) == pytest.approx(2)
    assert rows["mixed", "y"]["on:x"] in ("left->spine", "spine->right")
    assert float(rows["apart", "x"]["by:y"]) == pytest.approx(1, rel=1e-9)
    for name in ("interference.svg", "trace.json.gz", "links.csv", "report.html"):
        assert (Path("out") / name).exists()
    before = Path("out/results.csv").read_bytes()
    assert netsim(capsys, "run", "two.yaml", "-o", "out", "--resume", "-q").code == 0
    csv_only = ("--set", "outputs=[csv]")
    other = netsim(capsys, "run", "two.yaml", "-o", "other", "--jobs", "2", "-q", *csv_only)
    assert other.code == 0
    for folder in ("out", "other"):
        assert Path(folder, "results.csv").read_bytes() == before
    Path("mixed.yaml").write_text(yaml.safe_dump({**data, "sweep": {}}))
    told = netsim(capsys, "explain", "mixed.yaml")
    assert told.code == 0, told.err
    assert "x: 40 us beside the other jobs, 20 us without them: 2 times" in told.out
    assert "beside y only: 2 times as long; they meet most on left->spine" in told.out
    assert "Where the time goes" in told.out
    refused = netsim(capsys, "explain", "two.yaml", "--size", "1M")
    assert refused.code == 2
    assert "--size: expected one of the job's, 2000000" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise", ["link: {exponential: {mean: 5%}}", "launch: {normal: {mean: 1us, sigma: 1us}}"]
)
def test_noise_makes_jobs_longer_alike_on_both_engines(noise: str) -> None:
    jobs = [
        {"name": "x", "placement": [0, 2], "workload": sends(2_000_000, [[0, 1]]), "repeat": 1},
        {"name": "y", "placement": [1, 3], "workload": sends(6_000_000, [[0, 1]]), "repeat": 1},
    ]
    given = yaml.safe_load(f"{{{noise}}}")
    one, other = (rows_of(star(jobs, noise=given, samples=20), engine) for engine in ENGINES)
    for name, least in (("x", 40), ("y", 80)):
        assert one[name].time_us == pytest.approx(least, rel=1e-9)  # as without noise
        found = [[getattr(rows[name], f"p{q}_us") for q in (5, 50, 99)] for rows in (one, other)]
        assert found[0] == pytest.approx(found[1], rel=1e-9)
        assert 0.9 * least < found[0][0] < found[0][1] < found[0][2] < 2 * least
        assert found[0][1] > least  # though who begins late may meet the other for less time
    assert one["x"].samples == 20


def test_how_often_jobs_begin_again_follows_from_the_longest_and_from_how_many_rows_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    took = {"a": 3.0, "b": 1.0}
    parts = [jobs.JobPart(name, None, None) for name in took]
    monkeypatch.setattr(jobs.JobPart, "rows", property(lambda self: 5 * self.times))
    jobs_of = [SimpleNamespace(start=0.0, repeat=2), SimpleNamespace(start=0.5, repeat=0)]
    shared = SimpleNamespace(
        resolved=SimpleNamespace(jobs=jobs_of),
        _run=lambda some: SimpleNamespace(until=took[some[0].name]),
    )
    found = jobs.Shared._repeated(shared, parts)
    assert [(one.start, one.times) for one in found] == [(0.0, 2), (0.5, 6)]  # 5.5 s of 1 s each
    monkeypatch.setattr(jobs, "MOST_ROWS", 40)
    found = jobs.Shared._repeated(shared, parts)
    assert [one.times for one in found] == [2, 2]  # half of the rows, shared by two
    monkeypatch.setattr(jobs, "MOST_ROWS", 1)
    assert [one.times for one in jobs.Shared._repeated(shared, parts)] == [2, 1]
