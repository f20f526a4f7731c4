"""Checkouts of commits, the processes that answer questions in them, and answers that are kept.

All of it is outside the repository: in `$XDG_CACHE_HOME/netsim-same`, else `~/.cache/netsim-same`.

- `trees/COMMIT` are worktrees of git
- `answers/` has what commits answered, and working trees by the digest of their files
- `machine-code` is what the compiled engine was compiled to

The folder can be deleted at any time; `git worktree prune` then lets git forget the trees.
"""

import contextlib
import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.same.questions import Question

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("runner.py")
WALL_FACTOR = 15  # wall-clock seconds for each processor second that a question may take
ANSWERING_FOLDERS = ("netsim", "topologies", "scenarios")
QUESTIONS_PER_WORKER = 250  # after which its process is replaced: what it keeps takes memory

Answer = dict[str, Any]


def cache_folder() -> Path:
    """Return the folder for what is kept between runs."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "netsim-same"


def git(*words: str, folder: Path | None = None) -> str:
    """Return what git prints; a failure ends the command with git's message."""
    folder = folder or ROOT
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def resolve_commit(name: str) -> str:
    """Return the full hash of a commit, branch or tag."""
    return git("rev-parse", "--verify", f"{name}^{{commit}}")


def checked_out(commit: str) -> Path:
    """Return a worktree of a commit, made when it is first needed."""
    folder = cache_folder() / "trees" / commit
    if (folder / ".git").exists():
        changes = git("status", "--porcelain", folder=folder)
        if git("rev-parse", "HEAD", folder=folder) == commit and not changes:
            return folder
        raise SystemExit(f"{folder} is not as commit {commit} has it; delete it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    git("worktree", "prune")
    git("worktree", "add", "--force", "--detach", str(folder), commit)
    return folder


class AnswerStore:
    """Answers of one commit in a file, by question; they hold for one runner and its libraries."""

    def __init__(self, commit: str, seconds: float) -> None:
        versions = [version(name) for name in ("numpy", "numba", "pydantic")]
        told = [RUNNER.read_bytes().hex(), sys.version, str(seconds), *versions]
        surroundings = hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
        self._file = cache_folder() / "answers" / f"{commit}-{surroundings}.jsonl"
        self._answers: dict[str, Answer] = {}
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                self._read(line)

    def _read(self, line: str) -> None:
        try:
            entry = json.loads(line)
        except ValueError:  # the last line of a run that was ended
            return
        self._answers[entry["key"]] = entry["answer"]

    def find(self, question: Question) -> Answer | None:
        """Return the answer to a question, or None."""
        return self._answers.get(question.key)

    def keep(self, question: Question, answer: Answer) -> None:
        """Keep an answer for later runs."""
        self._answers[question.key] = answer
        self._file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": question.key, "answer": answer}) + "\n"
        with self._file.open("ab", buffering=0) as file:  # one write: others may append, too
            file.write(line.encode())


class Worker:
    """A process that answers questions one after another; it is started when it is needed."""

    def __init__(
        self,
        checkout: Path,
        seconds: float,
        coverage_folder: str = "",
        *,
        keeps_bytecode: bool = True,  # False: files may change within a second, at equal length
    ) -> None:
        self._command = [sys.executable, "-P", str(RUNNER), str(checkout), str(seconds)]
        if coverage_folder:
            self._command.append(coverage_folder)
        self._checkout = checkout
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._answered = 0
        self._keeps_bytecode = keeps_bytecode

    def ask(self, question: Question) -> Answer:
        """Return the answer; a process that dies over a question answers with `crash`."""
        process = self._running()
        if process is None:
            return {"outcome": "crash", "message": "netsim cannot be imported", "seconds": 0.0}
        answer = self._exchange(process, question.line() + "\n")
        if answer is None:
            code = self._discard(process)
            is_timeout = code in (-signal.SIGXCPU, -signal.SIGKILL)  # the latter by the timer below
            outcome = "timeout" if is_timeout else "crash"
            message = f"the process ended with {code}"
            return {"outcome": outcome, "message": message, "seconds": self._seconds}
        self._answered += 1
        return answer

    def _running(self) -> "subprocess.Popen[str] | None":
        if self._process is not None and self._answered >= QUESTIONS_PER_WORKER:
            self.close()
        if self._process is None:
            self._answered = 0
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=self._environment(),
            )
            if self._exchange(self._process, "") is None:
                self._discard(self._process)
        return self._process

    def _exchange(self, process: "subprocess.Popen[str]", line: str) -> Answer | None:
        """Write a line and return the one that comes back; None where the process ends."""
        assert process.stdin is not None
        assert process.stdout is not None
        compiling = 600.0 if not line else 0.0
        timer = threading.Timer(WALL_FACTOR * self._seconds + compiling, process.kill)
        timer.start()
        try:
            if line:
                process.stdin.write(line)
                process.stdin.flush()
            answered = process.stdout.readline()
        except BrokenPipeError:
            answered = ""
        finally:
            timer.cancel()
        return json.loads(answered) if answered.endswith("\n") else None

    def _environment(self) -> dict[str, str]:
        home = cache_folder()
        bytecode = {} if self._keeps_bytecode else {"PYTHONDONTWRITEBYTECODE": "1"}
        return {
            **os.environ,
            **bytecode,
            "PYTHONPATH": str(self._checkout),
            "PYTHONHASHSEED": "0",
            "NUMBA_CACHE_DIR": str(home / "machine-code"),
            "NETSIM_CACHE": str(home / "rows.sqlite"),
            "MPLBACKEND": "Agg",
            "COLUMNS": "118",
            "NO_COLOR": "1",
            "TERM": "dumb",
        }

    def close(self) -> None:
        """Let the process end as it would end itself."""
        if self._process is not None:
            self._discard(self._process)

    def _discard(self, process: "subprocess.Popen[str]") -> int:
        """Close the streams of a process, wait for it, and return its exit code."""
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        code = process.wait()
        process.stdout.close()
        self._process = None
        return code


def ask_all(
    questions: Sequence[Question],
    checkout: Path,
    seconds: float,
    jobs: int,
    *,
    coverage_folder: str = "",
) -> Iterator[tuple[Question, Answer]]:
    """Yield questions with their answers as they come, from `jobs` processes at once."""
    waiting: queue.Queue[Question] = queue.Queue()
    for question in questions:
        waiting.put(question)
    answered: queue.Queue[tuple[Question, Answer]] = queue.Queue()

    def work() -> None:
        worker = Worker(checkout, seconds, coverage_folder)
        while True:
            try:
                question = waiting.get_nowait()
            except queue.Empty:
                break
            answered.put((question, worker.ask(question)))
        worker.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for _ in questions:
        yield answered.get()
    for thread in threads:
        thread.join()


def tree_digest() -> str:
    """Return a digest of all files of the working tree that an answer can depend on."""
    digest = hashlib.sha256()
    for folder in ANSWERING_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode())
                digest.update(path.read_bytes())
    return f"tree-{digest.hexdigest()[:32]}"


def answers_of(
    commit: str | None, questions: Sequence[Question], seconds: float, jobs: int
) -> Iterator[tuple[Question, Answer]]:
    """Yield what a commit answers, from what is kept where possible; None: the working tree."""
    store = AnswerStore(commit or tree_digest(), seconds)
    missing = []
    for question in questions:
        answer = store.find(question)
        if answer is None:
            missing.append(question)
        else:
            yield question, answer
    if missing:
        checkout = checked_out(commit) if commit else ROOT
        for question, answer in ask_all(missing, checkout, seconds, jobs):
            store.keep(question, answer)
            yield question, answer
