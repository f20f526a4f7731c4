"""`netsim calibrate`: parameters that made a log are found again, and their file is used."""

from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np
import pytest

from netsim.base.errors import InputError, NetsimError
from netsim.cli.log_questions import Question, question_of
from netsim.cli.questions import QuestionOptions
from netsim.measured.calibrate import (
    AMBIGUOUS,
    UNSEEN,
    CalibratedParameter,
    CalibrationSet,
    Ratios,
    calibrate,
    fit,
    parameters_of,
)
from netsim.measured.compare import ALL, Compared, resolved_for, rows_of
from netsim.measured.index import with_figures
from netsim.measured.logs import read_log
from netsim.nccl.constants import calibrated, mechanism_of, names_of
from netsim.topology.load import load_machine
from netsim.topology.machine import Figure, value_of, written
from tests.cli.command import netsim

PAIR = "rtx2080ti-x2"
TRUE = "{launch.kernel: {value: 6us}, cpu.memory_bandwidth: {value: 12GB/s}}"
SIZES = "8,1K,16K,256K,1M,4M,16M,64M,256M"


class Workers:
    """Processes, of which is told with what they were ended."""

    ended: tuple[object, ...] = ()

    def __exit__(self, *error: object) -> None:
        self.ended = error


def test_workers_end_with_what_asked_them() -> None:
    with Ratios((), ()) as alone:
        assert alone.pool is None
    ratios = Ratios((), ())
    ratios.pool = pool = Workers()  # type: ignore[assignment]
    ratios.__exit__(ValueError, None, None)
    assert pool.ended == (ValueError, None, None)


def log_of_other_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    changed = f"cluster.overrides=[{{machine: {{calibration: {TRUE}}}}}]"
    options = ("--sizes", SIZES, "--format", "nccl-tests", "--set", changed)
    done = netsim(capsys, "expect", PAIR, "all_reduce", *options)
    assert done.code == 0, done.err
    path = tmp_path / "all_reduce.log"
    path.write_text(done.out)
    return path


@pytest.mark.full
def test_figures_that_made_a_log_are_found_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = log_of_other_figures(tmp_path, capsys)
    mine = tmp_path / "mine.yaml"
    options = ("--launch", "process_per_gpu", "-o", mine)
    done = netsim(capsys, "calibrate", logged, "--topology", PAIR, *options)
    assert done.code == 0, done.err
    figures = load_machine(mine).calibration
    memory = figures["cpu.memory_bandwidth"]
    assert value_of("cpu.memory_bandwidth", memory) == pytest.approx(12e9, rel=0.03)
    assert memory.stamp == "calibrated"
    assert "only the others are fitted" in done.out
    text = mine.read_text()
    assert text.startswith("description:")
    assert "# Turing whitepaper" in text  # the machine's own comments are kept
    checked = ("--topology", mine, "--tolerance", "3%", "--launch", "process_per_gpu")
    after = netsim(capsys, "compare", logged, *checked)
    assert after.code == 0, after.out


@pytest.mark.full
def test_six_points_of_a_real_run_lower_the_error_at_its_others() -> None:
    name = "rtx2080ti_autodl_2_all_reduce_1.csv"
    (run,) = read_log(Path("scenarios/measured/csv") / name, None)
    given = run.rows[:: len(run.rows) // 5][:6]
    six = replace(run, rows=given)
    others = replace(run, rows=tuple(row for row in run.rows if row not in given))
    launch = QuestionOptions(launch="single_process")
    source, _ = question_of(Question(PAIR, None, launch), six)
    found = calibrate([(source, six)])
    figures = {name: value_of(name, figure) for name, figure in found.figures.items()}
    errors = [
        Compared(others, tuple(rows_of(resolved_for(with_figures(source, some), others), others)))
        .bands[ALL]
        .median
        for some in ({}, figures)
    ]
    assert errors[0] > 0.08, "there was something to gain"
    assert errors[1] < errors[0] * 0.8


@pytest.mark.slow
def test_several_processes_find_the_same() -> None:
    path = Path("scenarios/measured/csv/gh200_alps_4_all_reduce_1.csv")
    (run,) = read_log(path, None)
    few = replace(run, rows=run.rows[5:17:4])
    source, _ = question_of(Question("gh200-x4", None, QuestionOptions()), few)
    parameters = parameters_of(resolved_for(source, few))
    x = np.zeros(len(parameters))
    sets = [CalibrationSet(source, few, few.rows)]
    found = []
    for jobs in (1, 2):
        with Ratios(parameters, sets, jobs, large=2) as ratios:
            assert (ratios.pool is None) is (jobs == 1)
            found.append(np.concatenate(ratios.at([x, x + 0.1], range(3))))
    assert np.array_equal(*found)
    assert not np.array_equal(found[0][:3], found[0][3:])


def shown(*factors: float):
    """Residuals of points, some for each parameter, that are 0 where it has its factor."""
    weight = np.linspace(1.0, 0.3, 9)

    def residuals(places):
        return [
            np.concatenate(
                [weight * (x[i] - log(factor)) for i, factor in enumerate(factors) if factor]
            )
            for x in places
        ]

    return residuals


PARAMETERS = [
    CalibratedParameter("shown", {"launch.kernel": 1e-6}, 1 / 3, 3),
    CalibratedParameter("beyond", {"rate.ll": 1e9}, 0.9, 1.1),
    CalibratedParameter("unseen", {"launch.host": 1e-6}, 1 / 3, 3),
]


def test_a_fit_finds_what_points_show_and_says_what_they_do_not() -> None:
    asked = []
    found = fit(PARAMETERS, shown(1.5, 1.3), asked.append)
    first, beyond, unseen = found.fitted
    assert exp(first.x) == pytest.approx(1.5, rel=0.01)
    assert first.low < log(1.5) < first.high
    assert unseen.left == "the points do not show it"
    assert exp(beyond.x) == pytest.approx(1.1, rel=0.02)
    assert (first.at_edge, beyond.at_edge, unseen.at_edge) == (False, True, False)
    assert [asked[0].tolist()[0], asked[0].tolist()[9]] == [
        [True, False, False],
        [False, True, False],
    ]


@pytest.mark.slow
def test_noise_is_not_fitted() -> None:
    random = np.random.default_rng(7)
    moves = []
    for _ in range(40):
        noise = random.normal(scale=0.03, size=6)
        slopes = np.abs(random.normal(size=(6, 3))) * np.array([1.0, 0.3, 0.1])

        def residuals(places, noise=noise, slopes=slopes):
            return [noise + slopes @ x for x in places]

        moves.append(np.abs(fit(PARAMETERS, residuals, lambda _: None).x).max())
    assert np.median(moves) < 0.05
    assert sum(move == 0.0 for move in moves) >= 10, "where no fit forecasts, none is made"


def test_the_best_place_that_was_simulated_is_kept() -> None:
    """The host hides the GPU until it is fast enough: no straight line tells of that."""
    offset = np.array([0.3, 0.28, 0.15, 0.25])

    def residuals(places):
        return [offset - 0.25 + np.maximum(0.25 + x[0], 0.1 + x[2]) for x in places]

    found = fit(PARAMETERS, residuals, lambda _: None)
    assert np.abs(residuals([found.x])[0]).mean() < 0.1
    assert np.abs(found.x).max() > 0.05


def test_one_wild_point_moves_nothing() -> None:
    residuals = shown(1.5)

    def wild(places):
        return [one + np.eye(9)[4] for one in residuals(places)]

    assert exp(fit(PARAMETERS, wild, lambda _: None).x[0]) == pytest.approx(1.5, rel=0.05)


def test_two_parameters_that_do_the_same_are_left_alone_and_reported_as_a_group() -> None:
    """A file that had one of them would claim what nobody knows."""

    def residuals(places):
        return [np.linspace(1.0, 0.5, 6) * (x[0] + x[2] - log(1.4)) for x in places]

    found = fit(PARAMETERS, residuals, lambda _: None)
    assert not found.x.any()
    assert [one.left for one in found.fitted] == [AMBIGUOUS, UNSEEN, AMBIGUOUS]
    group = {one.parameters[0].name: exp(one.x[0]) for one in found.alternatives}
    assert group == {"shown": pytest.approx(1.4, rel=0.02), "unseen": pytest.approx(1.4, rel=0.02)}


def test_every_constant_has_a_name_and_a_unit() -> None:
    usual = mechanism_of(90)
    assert "nvlink.sync.ll" in names_of(usual)
    changed = calibrated(usual, {"network.post.simple": Figure(value="9us")})
    assert changed.network.post.simple == pytest.approx(9e-6)
    assert changed.nvlink == usual.nvlink
    for name in ("rate.ll", "nvls_sync", "transport.usable"):
        assert value_of(name, Figure(value=written(name, 0.75))) == pytest.approx(0.75, rel=1e-3)
    with pytest.raises(InputError, match=r"did you mean nvlink\.sync\.ll"):
        calibrated(usual, {"nvlink.sync.l": Figure(value="9us")})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("launch.kernel: {value: 4}", "calibration.launch.kernel.value"),
        ("launch.kernel: {value: 4GB/s}", "calibration.launch.kernel.value"),
        ("launch.kernel: {value: 4us, stamp: guessed}", "stamp"),
    ],
)
def test_wrong_figures_are_refused_with_their_line(tmp_path: Path, line: str, message: str) -> None:
    text = Path("topologies") / f"{PAIR}.yaml"
    path = tmp_path / "mine.yaml"
    path.write_text(text.read_text() + f"calibration:\n  {line}\n")
    with pytest.raises(NetsimError, match=r"mine\.yaml:") as caught:
        load_machine(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("sizes", "topology", "message"),
    [
        ("8,16", PAIR, "nothing can be fitted to fewer than 3"),
        (SIZES, "two-hosts.yaml", "no such file"),
        (SIZES, "dgx-h1000", "did you mean dgx-h100?"),
    ],
)
def test_what_cannot_be_calibrated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sizes: str, topology: str, message: str
) -> None:
    options = ("--sizes", sizes, "--format", "nccl-tests")
    path = tmp_path / "all_reduce.log"
    path.write_text(netsim(capsys, "expect", PAIR, "all_reduce", *options).out)
    done = netsim(capsys, "calibrate", path, "--topology", topology)
    assert done.code == 2
    assert message in done.err
    assert not list(tmp_path.glob("*.yaml"))
