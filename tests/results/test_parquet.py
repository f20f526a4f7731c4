"""results.parquet: every column has its type, whichever values are missing."""

import sys
from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest

from netsim.base.errors import InputError
from netsim.results import parquet
from netsim.results.row import COLUMNS, Row
from tests.cli.command import netsim

SWEEP = """
cluster: {graph: {kind: switch, gpus: 4, bandwidth: 50GB/s, latency: 1us}}
workload: {collective: all_reduce, algorithm: ring, sizes: [1MiB, 2MiB]}
nccl: {version: "2.30"}
sweep: {workload.algorithm: [ring, direct]}
outputs: [csv, parquet]
"""


@pytest.fixture
def results(capsys, tmp_path: Path) -> Path:
    """The folder of a run of four rows, in which no column of samples has a value."""
    pytest.importorskip("pyarrow")
    scenario = tmp_path / "sweep.yaml"
    scenario.write_text(SWEEP)
    outcome = netsim(capsys, "run", str(scenario), "-q", "-o", str(tmp_path / "out"))
    assert outcome.code == 0
    return tmp_path / "out"


def test_every_column_of_a_row_has_a_parquet_type() -> None:
    kinds = {column.type for column in fields(Row) if column.name in COLUMNS}
    assert kinds <= set(parquet.ARROW_TYPES)


def test_columns_without_values_keep_their_types(results: Path) -> None:
    arrow = pytest.importorskip("pyarrow.parquet")
    schema = arrow.read_schema(results / "results.parquet")
    assert schema.names == [*COLUMNS, "axis:workload.algorithm"]
    types = {name: str(schema.field(name).type) for name in schema.names}
    assert types["p99_us"] == "double"
    assert types["samples"] == "int64"
    assert types["nccl_version"] == "string"
    assert types["axis:workload.algorithm"] == "string"


def test_pandas_reads_the_values_of_results_csv_with_their_types(results: Path) -> None:
    typed = pd.read_parquet(results / "results.parquet")
    text = pd.read_csv(results / "results.csv", dtype=str, keep_default_na=False)
    assert list(typed.columns) == list(text.columns)
    assert len(typed) == 4
    assert typed["size_bytes"].tolist() == [int(cell) for cell in text["size_bytes"]]
    assert typed["time_us"].tolist() == [float(cell) for cell in text["time_us"]]
    assert typed["nccl_version"].tolist() == text["nccl_version"].tolist()
    assert typed["axis:workload.algorithm"].tolist() == ["ring", "ring", "direct", "direct"]
    assert typed["p99_us"].isna().all()
    assert typed["p99_us"].dtype == float


def test_duckdb_computes_with_numeric_columns_that_are_empty(results: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    table = f"'{results / 'results.parquet'}'"
    best, samples, tail = duckdb.sql(
        f"select min(time_us), sum(samples), max(p99_us) + 1 from {table} where busbw_GBps > 0"
    ).fetchall()[0]
    assert best == pd.read_csv(results / "results.csv")["time_us"].min()
    assert samples is None
    assert tail is None


def test_the_schema_of_the_docs_gives_duckdb_the_types_of_results_csv(results: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = results / "results.csv"
    found = duckdb.sql(
        f"select * from read_csv('{path}', types={{'p99_us': 'DOUBLE', 'nccl_version': 'VARCHAR'}})"
    )
    types = dict(zip(found.columns, map(str, found.types), strict=True))
    assert types["p99_us"] == "DOUBLE"
    assert types["nccl_version"] == "VARCHAR"
    assert types["time_us"] == "DOUBLE"


def test_equal_rows_give_equal_files(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = [Row(cell="a", time_us=1.5, nccl_version="2.30", axes={"nodes": 4, "x": 0.5})]
    first = parquet.write_parquet(tmp_path / "a.parquet", rows, ["nodes", "x", "y"])
    second = parquet.write_parquet(tmp_path / "b.parquet", rows, ["nodes", "x", "y"])
    assert first.read_bytes() == second.read_bytes()
    table = pd.read_parquet(first)
    assert table["axis:nodes"].tolist() == ["4"]
    assert table["axis:x"].tolist() == ["0.5"]
    assert table["axis:y"].isna().all()


def test_a_seed_of_more_than_64_bits_is_an_error_of_input(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="seed: 18446744073709551616 does not fit 64 bits"):
        parquet.write_parquet(tmp_path / "a.parquet", [Row(seed=2**64), Row(seed=None)], [])


def test_a_missing_pyarrow_is_reported_before_anything_runs(
    capsys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="outputs: parquet needs the package pyarrow"):
        parquet.check()
    scenario = tmp_path / "sweep.yaml"
    scenario.write_text(SWEEP)
    outcome = netsim(capsys, "run", str(scenario), "-q", "-o", str(tmp_path / "out"))
    assert outcome.code == 2
    assert "pip install 'netsim[parquet]'" in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "out").exists()
