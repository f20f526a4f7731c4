"""Where machine code is kept, and that a run needs no compiler once it is there."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from netsim.base.startup import version_of
from netsim.collectives.collective import collective_of
from netsim.collectives.table import build
from netsim.engines import engine
from netsim.engines.compiled import machine_code
from netsim.engines.compiled.engine import advance_rows
from netsim.engines.compiled.machine_code import CompiledFunction, InnerFunction, NoLibraryError
from netsim.program.place import place
from netsim.topology.routing import switch

RUN = """
import sys
from netsim.engines.compiled.grouping import invert_dependencies
import numpy as np
ptr, row, lag = np.zeros(4, np.int32), np.empty(1, np.int32), np.empty(1, np.int16)
dep = np.array([0, 0, 1], np.int32), np.array([0], np.int32), np.array([3], np.int16)
invert_dependencies(*dep, ptr, row, lag)
assert ptr.tolist() == [0, 1, 1, 1] and row.tolist() == [1] and lag.tolist() == [3]
print(*sorted({"numba", "llvmlite"} & sys.modules.keys()))
"""
LINKED = sys.platform == "linux" and shutil.which("ld") is not None
NEEDS_LINKER = pytest.mark.skipif(not LINKED, reason="there is no linker")
LOADED = ""  # what is imported when a stored library is loaded
COMPILED = "llvmlite numba"
NO_FOLDER = "there is no folder that can be written and is this user's alone"
LOGGED = "machine code is not kept as a library, numba takes longer to start: "


def run(folder: Path | str, before: str = "", **more: str) -> tuple[str, str]:
    """What a process imports that calls a compiled function, and what it logs."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder), **more}
    command = [sys.executable, "-W", "error", "-c", before + RUN]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr.strip()


@NEEDS_LINKER
@pytest.mark.slow
def test_kept_code_runs_without_the_compiler(tmp_path: Path) -> None:
    assert run(tmp_path) == (COMPILED, "")
    assert [file.suffix for file in tmp_path.rglob("*.*")] == [".so"]
    assert run(tmp_path) == (LOADED, "")


@pytest.mark.slow
def test_without_a_linker_numba_compiles_and_keeps_the_code(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(tmp_path, PATH="") == (COMPILED, f"{LOGGED}there is no linker (ld)")
    suffixes = {file.suffix for file in tmp_path.rglob("*invert_dependencies*")}
    assert suffixes == {".nbi", ".nbc"}  # the index and the code as numba keeps them


@NEEDS_LINKER
@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        "machine_code.version_of = lambda package: '0.1'",
        "machine_code._processor = lambda: 'another processor'",
    ],
)
def test_code_of_another_version_or_processor_is_not_used(tmp_path: Path, change: str) -> None:
    assert run(tmp_path) == (COMPILED, "")
    before = f"from netsim.engines.compiled import machine_code\n{change}\n"
    assert run(tmp_path, before) == (COMPILED, "")
    assert run(tmp_path, before) == (LOADED, "")
    assert len(list(tmp_path.rglob("*invert_dependencies*.so"))) == 2


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            "from netsim.engines.compiled import machine_code; machine_code._llvm = lambda: sys",
            "AttributeError: module 'sys' has no attribute 'parse_assembly'",
        ),
        (
            "import numba.core.codegen as c; c.CPUCodeLibrary.get_llvm_str = lambda self: 'wrong'",
            "RuntimeError: LLVM IR parsing error",
        ),
        (
            "from netsim.engines.compiled import machine_code; machine_code._OPTIONS['gone'] = 1",
            "KeyError: ",
        ),
    ],
)
def test_with_an_unknown_interface_of_numba_or_llvm_numba_runs_functions_itself(
    tmp_path: Path, change: str, reason: str
) -> None:
    imported, logged = run(tmp_path, f"import sys\n{change}\n")
    assert imported == COMPILED
    assert logged.splitlines()[0].startswith(f"{LOGGED}{reason}")


@NEEDS_LINKER
@pytest.mark.slow
def test_damaged_code_is_compiled_again(tmp_path: Path) -> None:
    run(tmp_path)
    (file,) = tmp_path.rglob("*invert_dependencies*.so")
    file.write_bytes(file.read_bytes()[:-100])
    assert run(tmp_path) == (COMPILED, "")
    assert run(tmp_path) == (LOADED, "")


@NEEDS_LINKER
def test_a_library_that_does_not_load_is_replaced_by_numba(
    fresh, monkeypatch, tmp_path, caplog
) -> None:
    """As in a folder from which nothing may be run."""
    usable(monkeypatch, tmp_path)
    monkeypatch.setattr(machine_code, "library_of", lambda _: b"no library")
    function = CompiledFunction(len_of)
    assert [function(np.zeros(5)), function(np.zeros((6, 2)))] == [5, 6]
    assert function.is_ready
    (record,) = caplog.records
    assert record.message.startswith(LOGGED)
    assert record.message.endswith(".so cannot be loaded")


@NEEDS_LINKER
def test_what_cannot_be_linked_is_no_library() -> None:
    assert machine_code.library_of(
        machine_code.assemble(f"define i32 @{machine_code.SYMBOL}() {{ ret i32 0 }}")
    )
    with pytest.raises(NoLibraryError, match="cannot link"):
        machine_code.link(b"no object")


def test_the_processor_is_told_from_the_first_one_alone(monkeypatch, tmp_path) -> None:
    one = "processor : 0\nvendor_id : Some\ncpu MHz : 1234.5\nflags : sse2 avx2\n"
    told = tmp_path / "cpuinfo"
    told.write_text(one + "\n" + one.replace("avx2", "sse3"))
    monkeypatch.setattr(machine_code, "_CPUINFO", str(told))
    assert machine_code._processor() == "vendor_id : Some flags : sse2 avx2"
    told.write_text("")
    assert machine_code._processor() == machine_code.processor()
    told.unlink()
    assert machine_code._processor() == machine_code.processor()


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Nothing is known of folders, and nothing was logged; numba keeps code in a folder apart."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "numba"))
    machine_code.cache_folder.cache_clear()
    machine_code._log_once.cache_clear()
    yield
    machine_code.cache_folder.cache_clear()
    machine_code._inner_options.cache_clear()


def len_of(array: np.ndarray) -> int:
    return len(array)


def usable(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    monkeypatch.setattr(machine_code, "_candidates", lambda: iter(folders))


def test_the_first_folder_that_can_be_written_is_taken(fresh, monkeypatch, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    usable(monkeypatch, tmp_path / "file" / "below", tmp_path / "good", tmp_path / "other")
    assert machine_code.cache_folder() == tmp_path / "good"
    assert (tmp_path / "good").stat().st_mode & 0o077 == 0


def test_a_folder_that_others_can_write_is_not_trusted(fresh, monkeypatch, tmp_path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    usable(monkeypatch, tmp_path / "open")
    assert machine_code.cache_folder() is None


def test_without_any_folder_numba_runs_functions_and_one_line_says_so(
    fresh, monkeypatch, tmp_path, caplog
) -> None:
    usable(monkeypatch)
    for _ in range(2):
        assert CompiledFunction(len_of)(np.zeros(7)) == 7
    (record,) = caplog.records
    assert (
        record.message == f"{LOGGED}there is no folder that can be written and is this user's alone"
    )


class Pair(NamedTuple):
    values: np.ndarray
    count: int


def scaled_sum(pair: Pair, factor: int, result: np.ndarray) -> int:
    result[0] = pair.values.sum() * factor
    return pair.count


@InnerFunction
def doubled(number: int) -> int:
    return 2 * number


def doubled_len(array: np.ndarray) -> int:
    return doubled(len(array))


def test_functions_that_call_others_run_where_numba_lacks_an_option(fresh, monkeypatch) -> None:
    machine_code._inner_options.cache_clear()
    monkeypatch.setitem(machine_code._OPTIONS, "gone", True)
    assert CompiledFunction(doubled_len)(np.zeros(3)) == 6


def test_numba_gives_the_answers_of_the_library(fresh, monkeypatch, tmp_path) -> None:
    answers = []
    for folders in ((tmp_path,), ()):
        machine_code.cache_folder.cache_clear()
        usable(monkeypatch, *folders)
        result = np.zeros(1)
        values = np.arange(4.0)
        values.setflags(write=False)
        count = CompiledFunction(scaled_sum)(Pair(values, np.int32(4)), True, result)
        answers.append((count, result.tolist()))
    assert answers == [(4, [6.0])] * 2


def test_the_package_the_user_and_the_temporary_folder_are_tried(monkeypatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    package, user, temporary = machine_code._candidates()
    assert package.parent == Path(machine_code.__file__).parent
    assert str(user).startswith("/some/where") or sys.platform in ("win32", "darwin")
    assert temporary.name.startswith("netsim-")


def test_what_is_shown_compiles_only_where_it_pays(fresh, monkeypatch, tmp_path) -> None:
    """Until there is machine code, SimPy takes what is small, but not too much of it."""
    usable(monkeypatch, tmp_path)
    monkeypatch.setattr(advance_rows, "_ready", {})
    monkeypatch.setattr(engine._by_simpy, "rows", 0)
    few, some, long = (range(rows) for rows in (199, 200, engine.ONE_TOO_LONG))
    shown = engine.at_hand("auto", many=True)
    assert shown == engine.AT_HAND == engine.at_hand("auto")
    assert [engine.choose(one, shown) for one in (few, some, long)] == [
        "simpy",
        "simpy",
        "compiled",
    ]
    before = engine._by_simpy.rows
    engine.simulate(place(build(collective_of("all_reduce", 8, 64), "ring"), switch(8, 1e9)))
    assert engine._by_simpy.rows == before + 120
    monkeypatch.setattr(engine._by_simpy, "rows", engine.COMPILING_FROM - 200)
    assert engine.choose(some, shown) == "compiled"
    assert engine.choose(few, shown) == "simpy"
    monkeypatch.setattr(engine._by_simpy, "rows", 0)
    (tmp_path / f"{machine_code._stem(advance_rows._name)}-any.so").write_bytes(b"")
    assert engine.choose(some, shown) == engine.at_hand("auto", many=True) == "compiled"
    assert engine.at_hand("simpy", many=True) == "simpy"


@pytest.mark.parametrize("asked", ["auto", engine.FEW])
def test_what_is_written_does_not_depend_on_what_is_compiled(
    fresh, monkeypatch, tmp_path, asked
) -> None:
    """The same input has the same bytes, on a new machine and on one that has run before."""
    programs = [range(rows) for rows in (199, 200, 2_499, 2_500, 100_000)]
    monkeypatch.setattr(engine._by_simpy, "rows", 0)
    warm = [engine.choose(one, asked) for one in programs]
    usable(monkeypatch, tmp_path)
    monkeypatch.setattr(advance_rows, "_ready", {})
    monkeypatch.setattr(engine._by_simpy, "rows", engine.COMPILING_FROM)
    assert [engine.choose(one, asked) for one in programs] == warm
    assert warm.count("simpy") == (1 if asked == "auto" else 3)


def test_code_that_calls_what_no_process_has_is_refused() -> None:
    with pytest.raises(NoLibraryError, match="must stand alone, but it calls"):
        machine_code.assemble("declare i32 @strange()\ndefine i32 @f() {\n ret i32 0\n}")


def test_a_function_of_compiled_code_is_also_one_of_python() -> None:
    assert InnerFunction(lambda a: a + 1)(2) == 3


@pytest.mark.slow
def test_simulating_imports_nothing_that_takes_longer_than_simulating() -> None:
    """Searches, tables and pictures have libraries of their own; they are for who asks for them."""
    script = (
        "import sys, netsim.program.place, netsim.engines.compiled.engine, netsim.engines.simpy"
    )
    script += ", netsim.extent.engine_runs"
    script += "; print({'scipy', 'pandas', 'matplotlib', 'numba'} & sys.modules.keys())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="folders that cannot be made are named by Unix")
def test_a_first_run_where_neither_package_nor_home_can_be_written(tmp_path: Path) -> None:
    """Permissions would not stop root, so a file lies where the package would keep its code."""
    shutil.copytree(
        Path(machine_code.__file__).parents[2],
        tmp_path / "netsim",
        ignore=shutil.ignore_patterns("__pycache__", "_data"),
    )
    (tmp_path / "netsim/engines/compiled/__pycache__").write_text("")
    (tmp_path / "tmp").mkdir()
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"), "/proc/none")
    env = {**os.environ, **nowhere, "TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(tmp_path)}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    imported = []
    for _ in range(2):
        command = [sys.executable, "-W", "error", "-c", RUN]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=True)
        imported.append(done.stdout.decode().strip())
    assert imported == [COMPILED, LOADED if LINKED else COMPILED]
    assert len(list((tmp_path / "tmp").rglob("*invert_dependencies*.so"))) == LINKED


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="folders that cannot be made are named by Unix")
def test_where_nothing_at_all_can_be_written_numba_compiles_each_time(tmp_path: Path) -> None:
    before = "from netsim.engines.compiled import machine_code as m; m._usable = lambda _: False"
    imported, logged = run("/proc/none", f"{before}\n", HOME="/proc/none")
    assert imported == COMPILED
    assert logged == f"{LOGGED}{NO_FOLDER}"


@pytest.mark.parametrize("package", ["numba", "typer"])
def test_a_version_is_known_without_the_package(package: str) -> None:
    assert version(package) == version_of(package)
