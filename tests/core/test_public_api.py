"""What `import netsim` offers is exactly what is documented, and costs nothing to import."""

import re
import subprocess
import sys
from pathlib import Path

import netsim

ROOT = Path(__file__).parents[2]


def test_every_public_name_is_there() -> None:
    assert sorted(netsim.__all__) == netsim.__dir__()
    for name in netsim.__all__:
        assert getattr(netsim, name) is not None


def test_the_documented_names_are_the_public_ones() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    documented = set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE))
    assert documented == set(netsim.__all__)


def test_importing_netsim_loads_nothing_heavy() -> None:
    script = "import sys, netsim; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    for heavy in ("numpy", "numba", "matplotlib", "pandas", "pydantic", "networkx", "simpy"):
        assert f"'{heavy}'" not in loaded
