"""`netsim.run` from Python: a list of rows that becomes a table or a picture."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from matplotlib.figure import Figure

import netsim
from netsim.cli import main
from netsim.results.row import COLUMNS

SCENARIO = {
    "cluster": {"machine": "dgx-h100", "nodes": 2},
    "workload": {"collective": "all_reduce", "sizes": ["1MiB", "16MiB"]},
    "sweep": {"workload.algorithm": ["Ring", "Tree"]},
    "outputs": ["csv"],
}
STEP = {
    "cluster": {"machine": "a100-pcie-x4"},
    "workload": {
        "model": {"layers": 2, "hidden": 512, "heads": 8, "ffn": 2048, "vocabulary": 50257,
                  "sequence": 512},
        "batch": 16, "micro_batch": 4, "parallelism": {"dp": 4, "data": "ddp"},
    },
}  # fmt: skip
BROKEN = {
    "cluster": {"machine": "dgx-h100", "nodes": 2, "nics_per_node": 1},
    "workload": {"collective": "all_reduce", "sizes": ["1MiB"]},
    "sweep": {"faults": "each nic"},
}


@pytest.mark.slow
def test_a_mapping_gives_the_rows_of_the_file_with_the_same_keys(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(SCENARIO))
    rows = netsim.run(SCENARIO)
    assert isinstance(rows, list)
    assert rows == netsim.run(file) == netsim.run(str(file))
    assert [row.algorithm for row in rows] == ["Ring", "Ring", "Tree", "Tree"]


def test_settings_and_values_of_other_libraries_are_taken() -> None:
    sizes = (np.int64(2**20),)
    scenario = {**SCENARIO, "workload": {"collective": "all_reduce", "sizes": sizes}}
    rows = netsim.run(scenario, ["sweep={}", "cluster.nodes=1"])
    assert [(row.size_bytes, row.nodes) for row in rows] == [(2**20, 1)]
    rows = netsim.run({**scenario, "cluster": {"machine": "dgx-h100", "nodes": np.int32(1)}})
    assert rows[0].nodes == 1


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ({**SCENARIO, "cluster": {"machine": "dgx-h10"}}, "did you mean dgx-h100"),
        ({**SCENARIO, "clustre": {}}, "clustre"),
        ({**SCENARIO, "seed": object()}, "seed: expected what a scenario file may hold"),
        ({}, "cluster"),
    ],
)
def test_mistakes_in_a_mapping_name_the_key(scenario: dict[str, object], message: str) -> None:
    with pytest.raises(netsim.InputError) as error:
        netsim.run(scenario)
    assert message in str(error.value)


def test_the_frame_is_the_table_of_results_csv(tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(yaml.safe_dump(SCENARIO))
    with pytest.raises(SystemExit):
        main(["run", str(file), "-q", "-o", str(tmp_path / "out")])
    written = pd.read_csv(tmp_path / "out" / "results.csv")
    frame = netsim.run(file).to_frame()
    assert list(frame.columns) == list(written.columns)
    assert list(frame.columns) == [*COLUMNS, "axis:workload.algorithm"]
    for column in ("size_bytes", "time_us", "busbw_GBps", "axis:workload.algorithm", "ranks"):
        assert frame[column].tolist() == written[column].tolist()
    assert frame["time_us"].dtype == np.float64
    assert frame["error"].tolist() == [""] * 4
    assert frame["step_time_us"].isna().all()


def test_no_rows_are_a_frame_without_rows() -> None:
    frame = netsim.Rows().to_frame()
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == 0
    with pytest.raises(netsim.InputError, match="no row has a time"):
        netsim.Rows().plot()


def test_several_sizes_are_drawn_as_lines_and_one_as_bars() -> None:
    rows = netsim.run(SCENARIO)
    figure = rows.plot()
    assert isinstance(figure, Figure)
    assert figure.axes[0].get_ylabel().startswith("bus bandwidth")
    drawn = {len(line.get_xdata()) for axes in figure.axes[:2] for line in axes.lines}
    assert 2 in drawn
    single = netsim.Rows(row for row in rows if row.size_bytes == 2**20).plot()
    assert len(single.axes[0].patches) == 2
    widths = sorted(patch.get_width() for patch in single.axes[0].patches)
    assert widths == pytest.approx(sorted(row.busbw_GBps for row in rows[::2]))


def test_training_steps_are_drawn_by_their_time() -> None:
    rows = netsim.run(STEP)
    figure = rows.plot()
    assert "time of a training step" in figure.axes[0].get_xlabel()


def test_a_part_that_the_job_cannot_lose_is_a_row_without_a_time() -> None:
    rows = netsim.run(BROKEN)
    assert [(row.axes["faults"], row.status) for row in rows] == [
        ("healthy", "ok"),
        ("node0.nic0", "invalid"),
        ("node1.nic0", "invalid"),
    ]
    assert rows.to_frame()["time_us"].isna().tolist() == [False, True, True]
    assert "no NIC" in rows[1].error
    assert isinstance(rows.plot(), Figure)


@pytest.mark.slow
def test_a_run_from_python_imports_pandas_and_matplotlib_when_asked() -> None:
    script = (
        "import sys, netsim\n"
        "rows = netsim.run({'cluster': {'machine': 'dgx-h100'},"
        " 'workload': {'collective': 'all_reduce', 'sizes': [8]}})\n"
        "print('pandas' in sys.modules, 'matplotlib' in sys.modules)\n"
        "rows.to_frame()\n"
        "print('pandas' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "False", "True"]


def test_a_notebook_shows_a_figure_of_rows_as_a_picture() -> None:
    rows = netsim.run("quickstart", ["sweep={}", "workload.sizes=[64KiB, 1MiB]"])
    assert rows.plot()._repr_png_().startswith(b"\x89PNG")
