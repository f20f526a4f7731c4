"""python -m tests.bench.junk [BYTES]: how long files that are no logs take to be refused.

Each kind alone, as a file (5 s for 100 MB are too many), and a hundredth of it behind a row of
results, where every line is looked at: time is to grow as the size does, whatever the bytes are.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from netsim.base.errors import InputError
from netsim.measured.logs import parse_log, read_log

USUAL, PART = 100_000_000, 100
MOST = 5.0  # seconds
ROW = "# size count type time algbw busbw\n8 2 float 1 0 0\n"
PRINTED = bytes(32 + n % 95 if n % 97 else 10 for n in range(256))
PIECES = {
    "one letter": "a", "one sign": "#", "words": "# a ", "blanks": " ", "digits": "1",
    "numbers": "1 ", "commas": "1,", "colours": "\x1b[", "brackets": "[", "short lines": "x\n",
    "hosts": "a:1", "almost messages": ":1:1 [0] NCCL INFO ", "almost prefixes": "Mon Jan ",
    "almost headers": "# size  ", "almost devices": "# Rank 0 Pid 1 on a device 0 [",
    "almost settings": "# nThread 1 nGpus ", "almost versions": "NCCL version   ",
    "almost programs": "# Collective test starting: a_perf", "almost variables": "export NCCL_",
    "dates": " 2024-01-01",
    "almost choices": "1 Bytes -> Algo ", "log": "2024-01-01 12:00:00 step 12 loss 0.3 int8 ok\n",
    "code": "for (int i = 0; i < count; ++i) { float x = half * 2; double y; }\n",
}  # fmt: skip


def _random(size: int) -> bytes:
    made = random.Random(1).randbytes(size)
    return made[:4096].replace(b"\0", b"\1") + made[4096:]


def _printed(size: int) -> bytes:
    return random.Random(2).randbytes(size).translate(PRINTED)


MADE: dict[str, Callable[[int], bytes]] = {"random bytes": _random, "random text": _printed}
KINDS = (*MADE, *PIECES)


def junk(kind: str, size: int) -> bytes:
    """So many bytes of a kind, or a few less."""
    if kind in MADE:
        return MADE[kind](size)
    piece = PIECES[kind].encode()
    return piece * (size // len(piece)) + b"!"


def seconds(call: Callable[[], object]) -> float:
    """How long it takes to read or refuse something."""
    begin = time.perf_counter()
    with suppress(InputError):
        call()
    return time.perf_counter() - begin


def main() -> None:
    """A line a kind; exit code 1 if some take too long or longer than they are longer."""
    size, bad = int(sys.argv[1]) if len(sys.argv) > 1 else USUAL, []
    print(f"{'kind':<18} {'refused':>8} {'read':>8} {'of ten times as many':>21}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "junk.log"
        for kind in KINDS:
            path.write_bytes(junk(kind, size))
            whole = seconds(lambda: read_log(path))
            texts = [
                ROW + junk(kind, n // PART).decode(errors="replace") for n in (size // 10, size)
            ]
            less, more = (seconds(lambda text=text: parse_log(text, "x")) for text in texts)
            print(f"{kind:<18} {whole:8.2f} {less:8.3f} {more:21.3f}", flush=True)
            if whole > MOST or more > 30 * max(less, 0.01):
                bad.append(kind)
    sys.exit(f"too slow: {', '.join(bad)}" if bad else 0)


if __name__ == "__main__":
    main()
