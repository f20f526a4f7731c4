"""Reports: one file, nothing from outside, nothing executed; and in a browser, sorted, filtered."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from netsim.results.folder import open_folder
from netsim.results.row import Row
from tests.cli.command import netsim
from tests.report.web_driver import Browser

pytestmark = pytest.mark.slow  # each test draws a whole report

SWEEP = """\
# What if </script><script>alert(1)</script> the <b>links</b> were "faster" & 速い, it's ünïcode?
name: nics
cluster:
  graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}
workload: {collective: all_reduce, algorithm: ring, sizes: [64KiB, 16MiB]}
sweep:
  cluster.graph.bandwidth: [25GB/s, 50GB/s, 100GB/s]
  cluster.graph.gpus: [2, 4, 8]
  base: {cluster.graph.bandwidth: 50GB/s}
outputs: [csv]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    (place / "nics.yaml").write_text(SWEEP)
    return place


@pytest.fixture
def report(folder: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    if not Path("out/report.html").exists():
        assert netsim(capsys, "run", "nics.yaml", "-q", "-o", "out").code == 0
        done = netsim(capsys, "report", "out")
        assert (done.code, done.err) == (0, "wrote out/report.html\n")
    return folder / "out" / "report.html"


@pytest.fixture
def browser() -> Iterator[Browser]:
    opened = Browser()
    yield opened
    opened.close()


@pytest.mark.slow
def test_a_report_is_one_file_that_asks_nobody(report: Path) -> None:
    text = report.read_text()
    assert len(text) < 3e6
    links = re.findall(r"""(?:src|href|action)=["']([^"']*)""", text)
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "http://" not in re.sub(r"data:[^\"']*", "", text)
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text


def test_a_report_says_the_answer(report: Path) -> None:
    text = report.read_text()
    assert "Bandwidth 100GB/s is the fastest at 16 MiB under all 3 conditions" in text
    assert "Against the base line (bandwidth 50GB/s), bandwidth 100GB/s takes 49% less" in text
    names = {path.name for path in (report.parent / "pictures").iterdir()}
    drawn = ("sizes", "axes", "heat", "breakdown", "tornado", "timeline", "topology")
    assert {name + suffix for name in drawn for suffix in (".svg", ".png")} <= names


def test_nothing_executes_from_a_scenario(report: Path) -> None:
    text = report.read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert text.count("<script") == 2


def test_a_report_in_a_browser(report: Path, browser: Browser) -> None:
    browser.open(report.as_uri())
    assert browser.log() == []
    count = "return document.querySelectorAll('#rows tbody tr').length"
    cell = "return document.querySelector('#rows tbody tr td').textContent"
    assert browser.run(count) == 9  # of the largest size
    assert browser.run("return document.querySelectorAll('img').length") >= 6
    broken = "return [...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert browser.run(broken) == 0
    buttons = "[...document.querySelectorAll('#rows thead button')]"
    press = buttons + ".find(b => b.textContent === '{}').click()"
    browser.run(press.format("time"))
    assert browser.run(cell) == "100GB/s"
    sort = "return document.querySelector('th[aria-sort=ascending]').textContent"
    assert browser.run(sort) == "time"
    browser.run(press.format("time"))
    assert browser.run(cell) == "25GB/s"
    write = (
        "const i = document.querySelector('[aria-label=\"Filter gpus\"]'); i.value = '8';"
        "i.dispatchEvent(new Event('input'))"
    )
    browser.run(write)
    assert browser.run(count) == 3
    assert browser.run("return document.getElementById('count').textContent") == "3 of 18 rows"
    assert browser.log() == []


def test_basics_of_keyboard_and_screen_reader(report: Path, browser: Browser) -> None:
    browser.open(report.as_uri())
    assert browser.run("return document.documentElement.lang") == "en"
    assert browser.run("return document.querySelectorAll('h1').length") == 1
    assert browser.run("return [...document.images].every(i => i.alt)")
    unnamed = (
        "return [...document.querySelectorAll('input, select')].filter(i => "
        "!i.labels.length && !i.getAttribute('aria-label')).length"
    )
    assert browser.run(unnamed) == 0
    reachable = (
        "return [...document.querySelectorAll('#rows thead button')].every(b => b.tabIndex === 0)"
    )
    assert browser.run(reachable)
    assert browser.run("return !!document.querySelector('[role=status][aria-live]')")


@pytest.mark.parametrize("width", [390, 1280])
def test_a_report_fits_screens_of_any_width(report: Path, browser: Browser, width: int) -> None:
    browser.resize(width)
    browser.open(report.as_uri())
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.run("return document.querySelector('h1').getBoundingClientRect().right") <= width


@pytest.mark.full
def test_five_hundred_cells_make_a_small_report_soon(tmp_path: Path, capsys) -> None:
    sizes = [2**k for k in range(3, 34, 3)]
    axes = [{"cluster.nodes": n, "cluster.nic": f"{r}Gbps"} for n in range(25) for r in range(20)]
    points = [{"cell": f"{k:016x}", "axes": a, "sizes": sizes} for k, a in enumerate(axes)]
    rows = [
        Row(
            scenario="many",
            cell=point["cell"],
            size_bytes=size,
            algorithm="Ring",
            protocol="LL",
            time_us=10.0 + size / (k + 1) / 1e3,
            busbw_GBps=12.345678901 * k,
            bound_by=f"NIC egress {k % 100} %",
            validated="not validated",
            axes=point["axes"],
        )
        for k, point in enumerate(points)
        for size in sizes
    ]
    manifest = {"file": "many.yaml", "text": "# Many?\n", "points": points, "seed": 1,
                "axes": ["cluster.nodes", "cluster.nic"], "engine": "compiled"}  # fmt: skip
    with open_folder(tmp_path / "many", "many", resume=False, about=manifest) as folder:
        folder.write_results(rows, manifest["axes"])
    assert netsim(capsys, "report", tmp_path / "many", "--no-explain").code == 0
    assert (tmp_path / "many" / "report.html").stat().st_size < 3e6


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no run.json"),
        ({"run.json": "{}"}, "not written by netsim"),
        ({"run.json": '{"scenario": "x"}'}, "was written by an older netsim"),
        ({"run.json": '{"scenario": "x", "points": []}'}, "holds no results.csv"),
    ],
)
def test_a_folder_without_results_gets_one_message(tmp_path: Path, capsys, files, message) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    done = netsim(capsys, "report", tmp_path)
    assert done.code == 2
    assert message in done.err


@pytest.mark.full
def test_a_scenario_may_ask_for_its_report(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nics.yaml").write_text(SWEEP.replace("[csv]", "[csv, report]"))
    done = netsim(capsys, "run", "nics.yaml", "-o", "out")
    assert done.code == 0
    assert "files to out: results.csv, report.html and others" in done.err
    assert Path("out/report.html").exists()
