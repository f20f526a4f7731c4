"""What `netsim run` prints of training steps: a line a cell."""

from collections.abc import Iterator, Sequence

from netsim.results import Row
from netsim.scenario.cells import Cell
from netsim.scenario.clusters import cluster_label, node_count
from netsim.scenario.training import Recorded, Training

_COLUMNS = (
    ("step (ms)", "step_time_us", 1e3, 12, 3),
    ("MFU %", "mfu_pct", 1, 7, 1),
    ("tokens/s", "tokens_per_s", 1, 11, 0),
    ("exposed ms", "", 1e3, 11, 3),
    ("overlap %", "overlap_pct", 1, 10, 1),
    ("idle ms", "idle_us", 1e3, 10, 3),
    ("GB/GPU", "memory_GB", 1, 8, 1),
)


class StepTable:
    """All cells, with the axes that tell them apart."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells, self.axes = cells, list(cells[0].axes)
        self.begun = False

    def lines(self, cell: Cell, row: Row) -> Iterator[str]:
        """One cell; before the first, what is run and the names of columns."""
        del cell
        if not self.begun:
            yield from (self._title(), self._header())
        self.begun = True
        axes = ", ".join(f"{_short(axis)} {_plain(row.axes.get(axis))}" for axis in self.axes)
        if row.status != "ok":
            yield f"# {axes}: {row.error}"
            return
        exposed = sum(v for k, v in row.details.items() if k.startswith("exposed_"))
        values = {**row.details, "": exposed}
        texts = "".join(
            f"{values[key] / unit:>{width}.{digits}f}" if key in values else f"{'-':>{width}}"
            for _, key, unit, width, digits in _COLUMNS
        )
        yield f"{texts}  {row.bound_by:<24}  {axes}".rstrip()

    def end(self, rows: Sequence[Row]) -> Iterator[str]:
        """What was approximated, once."""
        words = [one for row in rows for one in row.approximation.split("; ") if one]
        if words:
            yield f"# approximated: {'; '.join(dict.fromkeys(words))}"

    def _title(self) -> str:
        scenario = self.cells[0].scenario
        work = scenario.workload
        assert isinstance(work, Training | Recorded)
        several = f", {len(self.cells)} cells" if len(self.cells) > 1 else ""
        where = f"{node_count(scenario.cluster)} x {cluster_label(scenario.cluster)}"
        return f"# a training step of {work.label} on {where}{several}"

    def _header(self) -> str:
        names = "".join(f"{name:>{width}}" for name, _, _, width, _ in _COLUMNS)
        axes = ", ".join(map(_short, self.axes))
        return f"#{names[1:]}  {'bound by':<24}  {axes}".rstrip()


def _short(axis: str) -> str:
    """The last part of a dotted key."""
    return axis.rpartition(".")[2]


def _plain(value: object) -> str:
    """A value as one writes it in YAML."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_plain(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_plain, value)) + "]"
    return str(value)
