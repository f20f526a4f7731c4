"""Verbs as processes that are hurt: started, killed, resumed, compared with one left in peace."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PATIENCE = 180  # seconds after which a process is held to hang
APART = ("journal.jsonl", "timings.csv")  # in the order of finishing, and wall times
VERBS = {
    "run": ("killed.yaml", "-o", "out"),
    "optimize": ("killed.yaml", "-o", "out"),
    "accuracy": ("index.yaml", "--json", "out/accuracy.json"),
    "calibrate": ("run.log", "--collective", "all_reduce", "--topology", "dgx-h100", "--nodes", "2",
                  "-o", "out/fitted.yaml"),
    "report": ("out",),
}  # fmt: skip
RESUMED = ("run", "optimize", "accuracy")


class Wrong(Exception):
    """What did not survive what it has to."""


class Victim:
    """One process of a verb, in a session of its own."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.said = ""
        root = str(Path(__file__).parents[2])
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": root, "MPLBACKEND": "Agg"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def hurt(self, name: str, whom: str, after: float) -> str:
        """Send a signal after so many seconds; what the process then ended with."""
        with suppress(subprocess.TimeoutExpired):
            _, self.said = self.process.communicate(timeout=after)
            return f"was over with {self.process.returncode}"
        number = signal.Signals[f"SIG{name}"]
        with suppress(ProcessLookupError):
            if whom == "its group":
                os.killpg(self.process.pid, number)
            elif whom == "a worker":
                for pid in workers(self.process.pid)[-1:]:
                    os.kill(pid, number)
            elif whom == "what workers are forked from":
                for pid in {parent(pid) for pid in workers(self.process.pid)}:
                    os.kill(pid, number)
            else:
                os.kill(self.process.pid, number)
        code = self.wait()
        if "Traceback" in self.said or (code and "worker" in whom):
            raise Wrong(f"{name} to {whom} after {after:.2f} s: {self.said}")
        return f"ended with {code}"

    def wait(self) -> int:
        """The exit code; a process that hangs is an error, as is one that leaves others behind."""
        try:
            _, said = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise Wrong(f"hangs for more than {PATIENCE} s") from None
        self.said += said or ""
        deadline = time.monotonic() + PATIENCE
        while in_session(self.process.pid):
            if time.monotonic() > deadline:
                raise Wrong(f"processes are left behind: {in_session(self.process.pid)}")
            time.sleep(0.05)
        return self.process.returncode


class Sweep:
    """A verb in a folder, the files that it leaves when nothing happens, and how long it takes
    in one process. What is in `given` is there before it begins.
    """

    def __init__(self, folder: Path, given: Mapping[str, str], verb: str = "run") -> None:
        self.folder, self.verb = folder, verb
        folder.mkdir(exist_ok=True)
        for name, text in given.items():
            (folder / name).write_text(text)
        if verb == "report":  # of a run
            self.finish(resume=False, verb="run")
            (folder / "out").rename(folder / "before")
        self.forget()
        began = time.monotonic()
        self.finish(resume=False)
        self.seconds = time.monotonic() - began
        self.whole = contents(folder / "out")

    def start(self, *options: object, verb: str = "") -> Victim:
        """Begin or resume it."""
        verb = verb or self.verb
        command = [sys.executable, "-m", "netsim", verb, *VERBS[verb], *map(str, options)]
        return Victim([*command, "-q"] if verb in RESUMED else command, self.folder)

    def finish(self, *options: object, resume: bool, verb: str = "") -> None:
        """Run it to its end."""
        again = ("--resume",) if resume and self.verb in RESUMED else ()
        victim = self.start(*options, *again, verb=verb)
        code = victim.wait()
        if code:
            raise Wrong(f"ends with {code}: {victim.said}")

    def forget(self) -> None:
        """Take away what there is."""
        out, before = self.folder / "out", self.folder / "before"
        shutil.rmtree(out, ignore_errors=True)
        if before.exists():
            shutil.copytree(before, out)
        elif self.verb in ("accuracy", "calibrate"):
            out.mkdir()

    def compare(self) -> None:
        """Raise what differs from the files of an uninterrupted run."""
        found = contents(self.folder / "out")
        if found.keys() != self.whole.keys():
            raise Wrong(f"other files: {sorted(found.keys() ^ self.whole.keys())}")
        differing = [name for name, content in found.items() if content != self.whole[name]]
        if differing:
            raise Wrong(f"other bytes: {', '.join(differing)}")


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder that are to be the same."""
    return {
        file.relative_to(folder).as_posix(): b"" if file.name in APART else file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def _fields(entry: Path) -> list[str]:
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _all() -> list[tuple[int, list[str]]]:
    entries = (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [(int(entry.name), fields) for entry in entries if (fields := _fields(entry))]


def in_session(session: int) -> list[int]:
    """Living processes of a session."""
    return [pid for pid, fields in _all() if int(fields[3]) == session and fields[0] not in "ZX"]


def workers(pid: int) -> list[int]:
    """The workers of a sweep: children of the child that they are forked from."""
    return [found for number in _children(pid) for found in below(number)]


def _children(pid: int) -> list[int]:
    """The processes that one has started; as the kernel lists them, where it does."""
    tasks = Path("/proc") / str(pid) / "task"
    if not Path("/proc/self/task").joinpath(str(os.getpid()), "children").exists():
        return [number for number, fields in _all() if int(fields[1]) == pid]
    try:
        return [
            int(one) for task in tasks.iterdir() for one in (task / "children").read_text().split()
        ]
    except OSError:  # it has ended
        return []


def parent(pid: int) -> int:
    """What a process was forked from; 0 if it has ended."""
    return int(next(iter(_fields(Path("/proc") / str(pid))[1:2]), 0))


def below(pid: int) -> list[int]:
    """All processes below one, the youngest last."""
    found, left = [], [pid]
    while left:
        mine = _children(left.pop())
        found += mine
        left += mine
    return sorted(found)
