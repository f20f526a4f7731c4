"""Files that are written entirely or not at all, presets by name, and interrupts that are delayed.

If a process is killed or a disk becomes full while a file is written, the old file stays as it was.
"""

import csv
import os
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from glob import escape
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO, TextIO

from netsim.base.errors import InputError, ScenarioError, nearest, suggest
from netsim.base.values import dataclass

_HALF = re.compile(r"\.(.+)\.[0-9]+\.half")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary stream whose content replaces the file when the `with` block ends without an error.

    If the path is a link, the file that it leads to is replaced. A device or a pipe is written
    directly.
    """
    beside = None
    try:
        place = Path(os.path.realpath(path))
        if not path.exists() or path.is_file() or path.is_dir():
            beside = place.with_name(f".{place.name}.{os.getpid()}.half")
            _clear_up(place)
        with (beside or path).open("wb") as stream:
            yield stream
            stream.flush()
            if beside:
                os.fsync(stream.fileno())
        if beside:
            beside.replace(place)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            if beside:
                beside.unlink(missing_ok=True)


def named_in(scenario: str | Path, name: str | Path) -> Path:
    """The path of a file that a scenario names: beside the scenario if it exists there, else as
    written.
    """
    beside = Path(scenario).parent / name
    return beside if os.path.isfile(beside) else Path(name)  # False of what is no name, too


def _clear_up(place: Path) -> None:
    """Delete the half-written temporary files for `place` that killed processes left."""
    delete_abandoned(place.parent, f".{escape(place.name)}.*.half")


def delete_abandoned(folder: Path, pattern: str = ".*.half") -> None:
    """Delete the half-written files in a folder whose processes no longer live; keep those of
    living ones.
    """
    for file in half_written(folder, pattern):
        process_number = int(file.name.split(".")[-2])
        try:
            os.kill(process_number, 0)
        except ProcessLookupError:
            file.unlink(missing_ok=True)
        except (OverflowError, PermissionError):
            pass  # a living process of somebody else, or no number of a process


def is_same_file(path: Path, second: Path) -> bool:
    """Whether two paths lead to the same file or folder, also through links."""
    try:
        return path.samefile(second)
    except OSError:  # one of them does not exist, or is a link to itself
        return os.path.realpath(path) == os.path.realpath(second)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk, so that they survive a loss of power, if the system can
    do that.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def made_folder(path: Path) -> Path:
    """Make a folder, with its parents if they are missing, and return it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be made: {error.strerror}") from None
    return path


def check_writable(flag: str, path: Path) -> None:
    """Raise an InputError if the file that option `flag` names cannot be written."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise InputError(f"{flag} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise InputError(f"{flag} {path}: this is a folder, expected a file to write")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"{flag} {path}: no permission to write it")


def write_bytes(path: Path, content: bytes) -> Path:
    """Replace a file by `content`, entirely or not at all; return its path."""
    with replacing(path) as stream:
        stream.write(content)
    return path


def write_text(path: Path, text: str) -> Path:
    """Replace a file by `text`, entirely or not at all; return its path."""
    return write_bytes(path, text.encode(errors="replace"))  # names of files may be any bytes


LARGEST_FILE = 4 * 2**20  # bytes of a file, unless its reader says that larger ones are usual
LARGEST_TABLE = 2**30  # bytes of tables, traces and journals, as netsim and profilers write them


def content_of(
    path: Path, largest: int = LARGEST_FILE, *, near: Sequence[str] = (), is_binary: bool = False
) -> bytes:
    """Return the bytes of a file; a ScenarioError says why it cannot be read.

    `largest` is the largest accepted size in bytes. Files of more than 4 MiB must be regular files,
    and their first 4 MiB must look like text unless `is_binary` is set: a device or a pipe may
    never end, and netsim has no use for other binary files. For a missing file, the error suggests
    a file with a similar name whose suffix is in `near`.
    """
    name = path.as_posix()
    hint = ""
    try:
        with path.open("rb") as stream:
            content = _read_bounded(stream, name, largest, is_binary=is_binary)
    except FileNotFoundError:
        with suppress(OSError):
            others = (one for one in path.parent.iterdir() if one.exists())  # not a dangling link
            names = sorted(one.name for one in others if one.suffix in near)
            close = nearest(path.name, names)
            hint = f"did you mean {path.with_name(close).as_posix()}?" if close else ""
        raise ScenarioError("no such file", source=name, hint=hint) from None
    except IsADirectoryError:
        raise ScenarioError("expected a file, got a directory", source=name) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ScenarioError(f"cannot be read: {reason}", source=name) from None
    return content


GZIP = b"\x1f\x8b"
WIDE_TEXT = (b"\xff\xfe", b"\xfe\xff")  # how UTF-16 begins, which Windows shells write


def _read_bounded(stream: BinaryIO, name: str, largest: int, *, is_binary: bool) -> bytes:
    """Read a stream to its end; raise a ScenarioError beyond the limits that `content_of`
    describes.

    `name` is the file in errors.
    """
    head = stream.read(min(largest, LARGEST_FILE) + 1)
    if len(head) <= min(largest, LARGEST_FILE):
        return head
    status = os.fstat(stream.fileno())
    is_regular = stat.S_ISREG(status.st_mode)
    if largest <= LARGEST_FILE or not is_regular or status.st_size > largest:
        most = largest if is_regular else min(largest, LARGEST_FILE)
        kind = "" if is_regular else ", and no regular file"
        raise ScenarioError(f"larger than {most >> 20} MiB{kind}", source=name)
    if not is_binary and b"\0" in head and not head.startswith((GZIP, *WIDE_TEXT)):
        raise ScenarioError("expected text, got a binary file", source=name)
    return head + stream.read(largest - len(head))


def text_of(path: Path, largest: int = LARGEST_FILE) -> str:
    """The text of a UTF-8 file of at most `largest` bytes; errors are those of `content_of`."""
    return decoded(content_of(path, largest), path.as_posix())


def table_text(path: Path) -> TextIO:
    """Open a table that may be large, for CSV readers.

    Of a regular file, the first 4 MiB are checked to be text, and the rest is read on demand. A
    pipe or a device may have at most 4 MiB.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        return StringIO(text_of(path), newline="")
    with path.open("rb") as stream:  # OSError where there is no such file
        head = stream.read(LARGEST_FILE)
    if b"\0" in head or (len(head) == LARGEST_FILE and b"\n" not in head):
        raise ScenarioError("expected text in lines, got a binary file", source=path.as_posix())
    return path.open(newline="", encoding="utf-8-sig")


def decoded(content: bytes, name: str) -> str:
    """The text of a file's bytes; a ScenarioError names the first line that is not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]
        byte = error.object[error.start]
        message = f"not text in UTF-8: byte 0x{byte:02X}"
        line = before.count(b"\n") + 1
        raise ScenarioError(message, source=name, line=line) from None


_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|nan)")


def csv_cell(value: object) -> str:
    """The value of a CSV cell; a text that a spreadsheet could run as a formula gets an apostrophe
    in front.
    """
    if value is None:
        return ""
    text = repr(float(value)) if isinstance(value, float) else str(value)  # numpy's, too
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return "'" + text
    return text


@cache
def table_beside(module: str, name: str) -> tuple[dict[str, str], ...]:
    """Return the rows of the CSV file `name` as mappings from column to text. The file is in the
    folder of a module; `module` is the module's `__file__`.
    """
    with (Path(module).parent / name).open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def csv_value(text: str) -> str:
    """The text of a CSV cell without the apostrophe that `csv_cell` may have put in front."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def csv_of(lines: Iterable[Iterable[object]]) -> str:
    """Lines of values as the text of a CSV file."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(map(csv_cell, line) for line in lines)
    return text.getvalue()


def half_written(folder: Path, pattern: str = "**/.*.half") -> list[Path]:
    """Return the temporary files in or below a folder, into which processes are writing or were
    writing when they were killed.
    """
    paths = folder.glob(pattern)
    return [file for file in paths if _HALF.fullmatch(file.name) and file.is_file()]


# Presets are the files that come with netsim; they are found from any directory. In a checkout they
# are in `topologies/` and `scenarios/` beside the package, in a wheel inside it. A file of the
# working directory takes precedence over a preset of the same name, and a note tells the user.

SUFFIXES = (".yaml", ".yml")
GOAL = (".goal", ".bin")  # text and binary
TRACES = (*GOAL, ".et")  # files that may be named in place of a scenario that runs them
_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Preset:
    """A file found by name: its path, and whether it takes the place of a preset with this name
    (`shadows`).
    """

    name: str
    path: Path
    shadows: bool = False

    @property
    def note(self) -> str:
        """A message for the user if the file takes the place of a preset; else ""."""
        return f"{self.path} is used instead of the preset {self.name}" if self.shadows else ""


def preset_folder(kind: str) -> Path:
    """The folder with the presets of a kind (`topologies` or `scenarios`)."""
    installed = _PACKAGE / "_data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def preset_names(kind: str) -> list[str]:
    """The names of all presets of a kind, in alphabetical order."""
    return sorted(file.stem for file in preset_folder(kind).glob("*.yaml"))


def find_preset(kind: str, name: str, noun: str = "") -> Preset:
    """The file that a name or a path means; an InputError for an unknown name lists the known ones.

    `kind` is `topologies` or `scenarios`; `noun` is the word for such a file in errors.
    """
    if is_path(name) or name == "-":
        path = Path("/dev/stdin" if name == "-" else name)
        return Preset(path.stem, path)
    preset = preset_folder(kind) / f"{name}.yaml"
    local = next((f for s in SUFFIXES if os.path.isfile(f := Path(kind) / f"{name}{s}")), None)
    if local is not None:
        apart = os.path.isfile(preset) and preset.read_bytes() != local.read_bytes()
        return Preset(name, local, shadows=apart)
    if os.path.isfile(preset):  # False where no file can have such a name
        return Preset(name, preset)
    if os.path.isdir(name):
        raise InputError(f"{name}: expected a file or a name, got a directory")
    noun_text = noun or kind.removesuffix("s")
    nouns = {"scenarios": "scenario", "topologies": "machine"}
    for folder_kind, preset_path in nouns.items():
        if folder_kind != kind and name in preset_names(folder_kind):
            hint = (
                "run and check take it"
                if preset_path == "scenario"
                else (f"expect and explain take it with a collective, and netsim topo show {name}")
            )
            raise InputError(f"expected a {noun_text}, got the {preset_path} '{name}'", hint=hint)
    if os.path.isfile(name):
        raise InputError(f"{name}: expected a name, or a path such as ./{name}")
    choices = sorted({*preset_names(kind), *(f.stem for f in Path(kind).glob("*.yaml"))})
    known_names = ", ".join(choices) or "none"
    raise InputError(f"unknown {noun_text} '{name}'{suggest(name, choices)}; known: {known_names}")


def is_path(name: str) -> bool:
    """Whether a text is the path of a file rather than the name of a preset."""
    return name.endswith((*SUFFIXES, *TRACES)) or "/" in name or "\\" in name


# Delayed interrupts. Ctrl-C, or the signal by which a batch queue ends a job, should raise
# KeyboardInterrupt only at moments when nothing is lost by it. Python raises it anywhere: where it
# is swallowed (in callbacks of the garbage collector), where locks stay in an undefined state, or
# where a process was just started that nobody then knows of. Blocking the signal does not help: it
# goes to another thread, and Python raises in the main thread all the same. So a handler notes the
# signal, and the code checks for it.

UNWINDING = 5.0  # seconds after Ctrl-C, while what is finished is written, and no other counts
_AGAIN = 0.02  # seconds after which one that vanished is raised again

SIGNALS = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
Handler = Callable[[int, FrameType | None], Any]


class Held:
    """A delayed interrupt: it takes effect when `check` is called.

    `usual` has the usual handler of each signal.
    """

    def __init__(self, usual: Mapping[int, Handler]) -> None:
        self.usual = usual
        self.noted = 0

    def note(self, number: int, _: FrameType | None) -> None:
        """The signal handler while interrupts are delayed: note the signal."""
        self.noted = number

    def check(self) -> None:
        """If a signal was noted, call its usual handler, which raises KeyboardInterrupt."""
        number = self.noted
        self.noted = 0
        if number:
            self.usual[number](number, None)


@contextmanager
def held() -> Iterator[Held]:
    """Delay interrupts within the `with` block. The block gets a `Held`: an interrupt that has come
    takes effect when the block calls its `check()`, or at the end of the block.
    """
    here = threading.current_thread() is threading.main_thread()  # others hear of no signal
    handlers = {number: signal.getsignal(number) for number in SIGNALS if here}
    usual: dict[int, Handler] = {
        number: handler for number, handler in handlers.items() if callable(handler)
    }
    waiting = Held(usual)
    for number in usual:
        signal.signal(number, waiting.note)
    with suppress(GeneratorExit):  # of a generator that is closed within the block
        try:
            yield waiting
        finally:
            for number, handler in usual.items():
                signal.signal(number, handler)
    waiting.check()


@contextmanager
def deaf() -> Iterator[None]:
    """Let processes that are started within the `with` block ignore Ctrl-C; their
    parent ends them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def listen() -> None:
    """Install the signal handler of a command: it raises KeyboardInterrupt once.

    Further signals are ignored for UNWINDING seconds, while the command ends. If the exception is
    swallowed in a callback, it is raised again. A signal that the shell lets this process ignore
    (Ctrl-C for background jobs) stays ignored.
    """
    raised = [-UNWINDING]
    last = [int(signal.SIGINT)]

    def interrupt(number: int, _: FrameType | None) -> None:
        if time.monotonic() - raised[0] >= UNWINDING:
            raised[0] = time.monotonic()
            last[0] = number
            raise KeyboardInterrupt

    def vanished(lost: "sys.UnraisableHookArgs") -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            usual(lost)
            return
        raised[0] = -UNWINDING
        threading.Timer(_AGAIN, signal.raise_signal, (last[0],)).start()

    usual = sys.unraisablehook
    sys.unraisablehook = vanished
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Restore this process's signal handlers after the `with` block, in which an import may replace
    them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
