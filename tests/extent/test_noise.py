"""Noise: draws by hand, both engines equal, seeds, named presets against what was measured."""

import numpy as np
import pandas as pd
import pytest

from netsim.base import constants
from netsim.engines.engine import simulate
from netsim.extent.noise import NoiseDraws, disturbed
from netsim.program.place import place
from netsim.report.rows import run
from netsim.scenario.models import Noise as NoiseSetting
from netsim.schedule.builder import Builder
from netsim.schedule.schedule import Style
from netsim.topology import routing
from tests.bench import noise as estimator
from tests.cli.command import netsim

LAUNCH = {"launch": {"exponential": {"mean": "5us"}}}
LINK = {"link": {"exponential": {"mean": "10%"}}}


def one_send(**said):
    """A send of 1 MB over 1 GB/s, and its noise: 50 samples of seed 3."""
    b = Builder(2)
    b.rows(Style(), src=[0], dst=[1], piece=b.pieces(count=[1_000_000]))
    made = place(b.finish(), routing.switch(2, 1e9))
    return made, NoiseDraws(NoiseSetting(**said).draws, 50, 3)


def test_the_last_of_two_ranks_begins_a_send():
    program, noise = one_send(**LAUNCH)
    late = [noise.of("launch", sample, program.gpus).max() for sample in range(50)]
    for engine in ("simpy", "compiled"):
        assert disturbed(program, noise, engine) == pytest.approx(1e-3 + np.array(late), rel=1e-9)


def test_kinds_of_draws():
    """Means and medians of many draws; none is below nothing, and a host may have one for all."""
    random, many = np.random.default_rng(1), 200_000
    said = NoiseSetting(
        launch={"lognormal": {"median": "2us", "sigma": 1}},
        compute={"normal": {"mean": "10%", "sigma": "1%"}},
        link={"exponential": {"mean": "3%"}, "common": "host"},
    )
    assert np.median(said.launch.draw(random, many)) == pytest.approx(2e-6, rel=0.02)
    assert said.compute.draw(random, many).mean() == pytest.approx(0.1, rel=0.01)
    assert said.link.draw(random, many).mean() == pytest.approx(0.03, rel=0.02)
    assert NoiseSetting(compute={"normal": {"sigma": "9%"}}).compute.draw(random, many).min() == 0
    noise = NoiseDraws(said.draws, 1)
    alike = noise.of("link", 0, ["node0.nic0->a", "node0.nic1->b", "node1.nic0->a"])
    assert alike[0] == alike[1] != alike[2]


def test_samples_of_a_file(tmp_path):
    (tmp_path / "late.csv").write_text("1us\n4us\n")
    said = NoiseSetting(launch={"file": str(tmp_path / "late.csv")})
    draws = said.launch.draw(np.random.default_rng(0), 100)
    assert sorted(set(draws)) == pytest.approx([1e-6, 4e-6])


def settings(*more):
    return ["cluster.nodes=2", "workload.sizes=[1MiB]", "samples=20", *more]


SLOW = "noise={link: {exponential: {mean: 20%}}, launch: {exponential: {mean: 5us}}}"


@pytest.mark.slow
def test_both_engines_and_the_same_seed_give_the_same_samples(tmp_path):
    """And another seed others; without noise a call takes no longer than at its 5 %."""
    path = tmp_path / "noisy.yaml"
    path.write_text(
        "cluster: {machine: dgx-h100, gpus_per_node: 2}\n"
        "workload: {collective: all_reduce, algorithm: ring, sizes: [1MiB]}\noutputs: [csv]\n"
    )
    one, again, other = (
        run(path, settings(SLOW, f"seed={seed}"), engine=engine)[0]
        for engine, seed in (("simpy", 1), ("compiled", 1), ("compiled", 2))
    )
    assert one.samples == 20
    assert list(one.quantiles.values()) == pytest.approx(list(again.quantiles.values()), rel=1e-9)
    assert one.p50_us != pytest.approx(other.p50_us, rel=1e-6)
    assert one.time_us < one.p5_us < one.p50_us < one.p95_us < one.p99_us


@pytest.mark.slow
def test_steps_have_percentiles_and_a_picture(tmp_path, capsys, pictures):
    path = tmp_path / "step.yaml"
    path.write_text(
        "cluster: {machine: dgx-h100, gpus_per_node: 2, nodes: 2}\n"
        "workload: {model: bert-base, batch: 8}\noutputs: [csv, plots]\n"
        "noise: {compute: {normal: {mean: 10%, sigma: 1%}}}\nsamples: 30\n"
    )
    netsim(capsys, "run", path, "--output", tmp_path / "out")
    row = pd.read_csv(tmp_path / "out" / "results.csv").iloc[0]
    assert row["step_time_us"] * 1.02 < row["p50_us"] < row["step_time_us"] * 1.14
    assert (tmp_path / "out" / "distribution.png").stat().st_size > 10_000
    table = pd.read_csv(tmp_path / "out" / "distribution.csv")
    assert table["p50"][0] == pytest.approx(row["p50_us"])


@pytest.mark.parametrize(("name", "rows"), [(n, of) for n, (of, _) in estimator.parts().items()])
def test_named_noise_is_what_is_estimated(name, rows):
    median, sigma = estimator.fitted(rows)
    assert constants.value(f"{name}.median") == pytest.approx(median, rel=0.01)
    assert constants.value(f"{name}.sigma") == pytest.approx(sigma, rel=0.01)


def test_steps_kept_aside_grow_as_is_said():
    """Rise from p50 to p99 of systems that nothing was fitted to: two in three within 2.2 times."""
    off = []
    for kind in ("quiet", "production"):
        name = f"noise.{kind}.compute"
        for _, row in estimator.parts()[name][1].iterrows():
            figures = (constants.value(f"{name}.{part}") for part in ("median", "sigma"))
            off.append(abs(np.log(estimator.rise(*figures, row["gpus"], 0.99) / row["0.99"])))
    assert len(off) == 8
    assert np.quantile(off, 2 / 3) < np.log(2.2)


def test_noise_is_no_part_of_what_is_without_it():
    program, noise = one_send(**LINK)
    plain = simulate(program, "simpy").makespan
    times = disturbed(program, noise, "compiled")
    assert plain == pytest.approx(1e-3)
    assert times.min() >= plain
