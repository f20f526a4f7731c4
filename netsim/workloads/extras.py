"""The small collectives that real steps have besides: broadcasts, statistics, norms, losses."""

from collections.abc import Sequence

from netsim.workloads.emit import StageRanks
from netsim.workloads.setting import Extra, Setting
from netsim.workloads.tape import Deps, Tape

WHEN = ("init", "forward", "backward", "step", "eval")
AXES_OF = {
    "all": ("tp", "cp", "ep", "dp", "pp"),
    "tp": ("tp",),
    "cp": ("cp",),
    "ep": ("ep",),
    "dp": ("cp", "ep", "dp"),
    "pp": ("pp",),
    "model": ("tp", "pp"),
}
FP32 = 4
STATISTICS = 2 * 26_560 * FP32  # mean and variance of all channels of ResNet-50's batch norms


def preset(name: str, parameters: int, scale: int) -> Extra | None:
    """A collective that people know by name; `parameters` of a rank, `scale` samples of a step."""
    known = {
        # Every rank starts from the weights of rank 0.
        "parameter-broadcast": Extra(name, "broadcast", AXES_OF["dp"], parameters * FP32, "init"),
        "sync-batch-norm": Extra(
            name, "all_gather", AXES_OF["dp"], 53 * 2 * 256 * FP32 * scale, "forward"
        ),
        "loss-reduce": Extra(name, "all_reduce", AXES_OF["dp"], FP32, "step"),
        "gradient-norm": Extra(name, "all_reduce", AXES_OF["all"], FP32, "step"),
        "input-scatter": Extra(name, "broadcast", AXES_OF["tp"], 8 * scale, "forward"),
        "evaluation-gather": Extra(name, "all_gather", AXES_OF["dp"], FP32 * scale, "eval"),
    }
    return known.get(name)


PRESETS = (
    "parameter-broadcast", "sync-batch-norm", "loss-reduce", "gradient-norm", "input-scatter",
    "evaluation-gather",
)  # fmt: skip


def write_extras(tape: Tape, setting: Setting, when: str, stages: Sequence[StageRanks]) -> Deps:
    """Write down the extras of one moment of the step; what follows may wait for them."""
    made: list[int] = []
    for extra in setting.extras:
        if extra.when != when:
            continue
        groups = setting.grid.groups(extra.axes)
        after = [end for stage in stages for end in tape.last_of(stage.ranks)]
        found = tape.collective(
            extra.name, "extra", extra.collective, groups, extra.nbytes, tuple(after),
            dtype=extra.dtype,
        )  # fmt: skip
        made += [] if found is None else [found]
    return tuple(made)
