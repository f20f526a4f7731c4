"""Entries of published training steps become scenarios by rules, or say why not."""

from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from netsim.base.constants import TABLE
from netsim.base.errors import NetsimError
from netsim.measured import accuracy, training
from netsim.measured.accuracy import steps_left_out
from netsim.measured.accuracy_records import AccuracyRecords
from netsim.measured.estimate import Without
from netsim.measured.index import read_index
from netsim.measured.training import (
    ComparedStep,
    ComparedSteps,
    Published,
    Unstated,
    by,
    error,
    is_published,
    page_of,
    published,
    run_steps,
    work_of,
)
from netsim.results.journal import Journal
from netsim.topology.load import load_machine
from netsim.workloads.model import MODELS
from tests.cli.command import netsim

INDEX = Path("scenarios/measured/training.yaml")
ENTRIES = {entry.id: entry for entry in read_index(INDEX, ())}
FEW = ("titan_t1_1", "mosaic_110", "nemo_255")


def test_an_index_of_steps_is_known_by_its_entries() -> None:
    assert is_published(INDEX)
    assert not is_published(Path("scenarios/measured/index.yaml"))


def test_rules_of_frameworks() -> None:
    mosaic = published(ENTRIES["mosaic_077"])
    assert (mosaic.framework, mosaic.generation, mosaic.gpus) == ("MosaicML", "Ampere", 64)
    work = mosaic.data["workload"]
    assert work["recompute"] == "non-reentrant"
    assert work["parallelism"]["data"] == "fsdp"
    titan = published(ENTRIES["titan_a70_async_float8_rowise"]).data
    assert titan["workload"]["scaling"] == "row"
    assert titan["workload"]["parallelism"]["tensor_overlap"] == "pipelined"
    assert titan["cluster"]["overrides"][0]["machine"]["gpu"]["power"] == "500W"
    nemo = published(ENTRIES["nemo_036"])
    assert nemo.precision == "mxfp8"
    assert sum(nemo.data["workload"]["pipeline"]["stages"]) == 126
    assert nemo.notes


def changed(id_: str, **values: object) -> Published:
    """An entry with other values, as a step."""
    entry = ENTRIES[id_]
    return published(replace(entry, values={**entry.values, **values}))


@pytest.mark.parametrize(
    ("accelerator", "layout", "stages", "again", "dispatcher"),
    [
        (
            "DGX-GB300",
            {"pp": "4", "vp": "4", "ep": "64"},
            [4] * 15 + [1],
            ["mla_up_proj"],
            "deduplicated",
        ),
        (
            "DGX-H100",
            {"tp": "8", "pp": "16", "vp": "2", "ep": "64"},
            [1] + [2] * 30 + [0],
            ["mla_up_proj", "mlp"],
            "alltoall",
        ),
    ],
)
def test_layers_of_kimi_k2_by_stage_are_those_of_its_recipes(
    accelerator: str, layout: dict[str, str], stages: list[int], again: list[str], dispatcher: str
) -> None:
    one = changed(
        "nemo_012",
        model="Kimi_K2",
        accelerator=accelerator,
        accelerators="1024",
        per_node="4" if "GB" in accelerator else "8",
        global_batch="8192",
        precision="FP8",
        parallelism=layout,
    )
    assert one.work["model"] == "kimi-k2"
    assert one.family == "Kimi-K2"
    assert one.work["pipeline"]["stages"] == stages
    assert one.work["recompute"] == again
    assert one.work["parallelism"]["dispatcher"] == dispatcher


def test_mlperfs_fine_tuning_trains_the_adapters_of_its_reference() -> None:
    """Llama 2 70B of MLPerf: rank 16 on all four products of attention."""
    one = changed(
        "mlperf_v41_NVIDIA_eos_n32_ngc24_09_nemo_gpt3",
        model="Llama2-70B LoRA (MLPerf)",
        parallelism={"tp": "4", "pp": "1", "cp": "1"},
    )
    assert one.work["model"] == "llama2-70b"
    assert one.work["lora"] == {"rank": 16, "targets": ["linear_qkv", "linear_proj"]}


@pytest.mark.parametrize("id_", ["nemo_069", "nemo_072"])
def test_entries_with_lora_train_the_adapters_of_their_recipe(id_: str) -> None:
    one = published(ENTRIES[id_])
    assert one.work["lora"] == {"rank": 16, "targets": ["linear_qkv"]}
    assert any("adapters" in note for note in one.notes)


@pytest.mark.parametrize(
    ("id_", "beside", "again"),
    [
        ("nemo_018", True, None),
        ("nemo_087", False, ["mla_up_proj"]),
        ("nemo_090", True, ["mla_up_proj"]),
    ],
)
def test_recipes_by_release(id_: str, beside: bool, again: list[str] | None) -> None:
    work = published(ENTRIES[id_]).data["workload"]
    assert work["parallelism"].get("expert_overlap", False) is beside
    assert work.get("recompute") == again
    assert work.get("experts", "separate") == ("fused" if id_ == "nemo_018" else "separate")


@pytest.mark.parametrize(
    ("id_", "chunks", "gather", "attention"),
    [
        ("mlperf_v30_NVIDIA_dgxh100_n64_nemo_gpt3", 12, "weights", "flash2"),
        ("mlperf_v31_NVIDIA_eos_n64_ngc23_09_nemo_gpt3", 12, "weights", "fused"),
        ("mlperf_v40_NVIDIA_eos_n64_ngc24_04_nemo_gpt3", 4, "fp8", "fused"),
    ],
)
def test_rounds_of_mlperf(id_: str, chunks: int, gather: str, attention: str) -> None:
    work = published(ENTRIES[id_]).data["workload"]
    assert work["pipeline"] == {"chunks": chunks}
    assert work["replicas"].get("gather", "weights") == gather
    assert work.get("attention", "fused") == attention


def test_what_recipes_send_tokens_with() -> None:
    sent = {
        id_: published(ENTRIES[id_]).data["workload"]["parallelism"]["dispatcher"]
        for id_ in ("nemo_087", "nemo_138", "nemo_231", "nemo_276")
    }
    assert sent == dict.fromkeys(sent, "alltoall") | {"nemo_087": "deduplicated"}


@pytest.mark.parametrize(
    ("id_", "reason"),
    [
        ("mlperf_v30_Intel_HabanaLabs_HLS_Gaudi2_N32_PT_gpt3", "are not modeled"),
        ("mlperf_v41_NVIDIA_eos_dfw_n1452_ngc24_04_nemo_gpt3", "again: same logs"),
        ("nemo_003", "not among those that are simulated"),
    ],
)
def test_what_no_scenario_can_be_made_of_says_why(id_: str, reason: str) -> None:
    with pytest.raises(Unstated, match=reason):
        published(ENTRIES[id_])


def test_most_entries_are_scenarios() -> None:
    made = 0
    for entry in ENTRIES.values():
        try:
            made += published(entry).seconds > 0
        except NetsimError:
            continue
    assert made >= 330


def step(framework: str, ratio: float) -> ComparedStep:
    one = Published("x", framework, "dgx-h100", "Hopper", "Llama", "bfloat16", 8, 1.0, {}, ())
    return ComparedStep(one, ratio, 0.5)


def test_groups_weigh_equally() -> None:
    many, few = [step("a", 1.5)] * 30, [step("b", 1.1)] * 2
    found = error([*many, *few, step("c", 0.9)])
    assert found.median == pytest.approx(1 / 0.9 - 1)
    assert found.bias == pytest.approx(0.1)
    assert [len(some) for some in by([*many, *few], "group").values()] == [30, 2]


@pytest.mark.slow
def test_steps_are_near_what_was_published() -> None:
    found = run_steps([ENTRIES[one] for one in FEW], 1)
    assert not found.failed
    assert error(found.compared).median < 0.1
    page = page_of(found, dict.fromkeys(FEW, "https://example.org"))
    assert all(f"| {one} |" in page for one in FEW)


@pytest.mark.slow
@pytest.mark.parametrize("leave_out", [False, True])
def test_steps_of_an_interrupted_run_are_known_when_it_resumes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    leave_out: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    few = [part for one in FEW for part in ("--only", one)]
    options = [*few, "--jobs", 1, "--json", tmp_path / "steps.json", *["--leave-out"] * leave_out]
    if leave_out:
        monkeypatch.setattr(accuracy, "_estimates_without", lambda *_: [])
    simulate, asked = training._answer, list[str]()
    most = 1

    def answer(entry, values):
        if len(asked) == most:
            raise KeyboardInterrupt
        asked.append(entry.id)
        return simulate(entry, values)

    monkeypatch.setattr(training, "_answer", answer)
    done = netsim(capsys, "accuracy", "training.yaml", *options)
    assert done.code == 130
    assert "interrupted: 2 entries are missing" in done.err
    assert Path("reports/accuracy-training.jsonl").exists()
    most = 99
    done = netsim(capsys, "accuracy", "training.yaml", *options, "--resume")
    assert done.code == 0, done.err
    assert "1 steps are known from reports/accuracy-training.jsonl" in done.err
    assert sorted(asked) == sorted(FEW)  # each was simulated once
    resumed = (tmp_path / "steps.json").read_text()
    assert not Path("reports/accuracy-training.jsonl").exists()
    assert netsim(capsys, "accuracy", "training.yaml", *options).code == 0
    assert (tmp_path / "steps.json").read_text() == resumed


def test_steps_on_more_gpus_are_more_work_and_entries_without_a_scenario_none() -> None:
    works = {one: work_of(ENTRIES[one]) for one in FEW}
    assert sorted(FEW, key=works.__getitem__) == sorted(
        FEW, key=lambda one: published(ENTRIES[one]).gpus
    )
    assert min(works.values()) > 0
    unstated = ENTRIES["mlperf_v41_NVIDIA_eos_dfw_n1452_ngc24_04_nemo_gpt3"]
    assert work_of(unstated) == 0


def test_a_step_that_changed_since_is_not_taken_from_the_journal() -> None:
    entry = ENTRIES[FEW[0]]
    keys = {
        accuracy._key_of_step(entry, {}),
        accuracy._key_of_step(entry, {"gemm.other": 0.5}),
        accuracy._key_of_step(replace(entry, values={**entry.values, "nodes": 99}), {}),
        accuracy._key_of_step(ENTRIES[FEW[1]], {}),
    }
    assert len(keys) == 4


def test_failures_of_steps_are_known_and_lost_workers_are_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    with Journal.open(path) as journal:
        records = AccuracyRecords(journal)
        records.keep("a", step="no scenario")
        records.keep("b", step=[(1.5, 0.4), (1.6, 0.3)])
    again = AccuracyRecords()
    with Journal.open_to_read(path) as journal:
        journal.read(again.take)
        assert not journal.damage
    assert again.steps == {"a": "no scenario", "b": ((1.5, 0.4), (1.6, 0.3))}


@pytest.mark.full
def test_steps_are_simulated_again_without_what_their_group_says() -> None:
    """Those of one group are all that a constant was fitted to, or others' say what it is then."""
    asked = [ENTRIES[one] for one in ("titan_a8_van_float8_rowise", "mosaic_110")]
    few = ("titan_a8_van_float8_rowise", "titan_t1_1", "mosaic_038", "mosaic_110", "mosaic_113")
    corpus = [ENTRIES[one] for one in few]
    kept = {one: TABLE[one] for one in TABLE}
    again = steps_left_out(asked, corpus, 1, lambda done, of: None)
    assert kept == TABLE
    assert [one.published.id for one in again.left_out] == [
        one.published.id for one in again.compared
    ]
    assert all(
        one.simulated != other.simulated
        for one, other in zip(again.left_out, again.compared, strict=True)
    )
    assert any(one.endswith("that of sm_90.gemm.fp8") for one in again.without)
    assert any(one.startswith("MosaicML, Ampere: sm_80.gemm") for one in again.without)
    page = page_of(again, dict.fromkeys(ENTRIES, "https://example.org"))
    assert "left out: median error" in page
    assert '"all_left_out"' in again.json()


def test_accuracy_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    out = netsim(capsys, "accuracy", "training.yaml", "--only", "titan_t1_1", "--jobs", "1").out
    assert "TorchTitan, Hopper" in out
    assert "titan_t1_1" in out


@cache
def told() -> dict[str, Published]:
    """All entries that become scenarios."""
    found = {}
    for id_, entry in ENTRIES.items():
        with suppress(Unstated):
            found[id_] = published(entry)
    return found


def test_every_step_has_its_gpus_in_whole_hosts_and_domains() -> None:
    assert len(told()) > 300
    machines = {name: load_machine(name) for name in {one.machine for one in told().values()}}
    for id_, one in told().items():
        cluster, machine = one.data["cluster"], machines[one.machine]
        each = cluster.get("gpus_per_node", machine.gpu.count)
        assert each <= machine.gpu.count, id_
        assert 0 <= cluster["nodes"] * each - one.gpus < each, id_
        changed = [over["machine"] for over in cluster.get("overrides", ())]
        domains = [over["scale_up"]["hosts"] for over in changed if "scale_up" in over]
        most = machine.scale_up.hosts if machine.scale_up else 1
        if most > 1 and cluster["nodes"] > most:
            (hosts,) = domains
            assert cluster["nodes"] % hosts == 0, id_
            assert hosts <= most, id_
            larger = range(hosts + 1, most + 1)
            assert not [one for one in larger if cluster["nodes"] % one == 0], id_
        else:
            assert not domains, id_


def test_every_step_has_the_degrees_and_the_batch_that_its_source_states() -> None:
    for id_, one in told().items():
        values, parallel = ENTRIES[id_].values, one.work["parallelism"]
        stated = values.get("parallelism")
        if isinstance(stated, dict):
            for axis in ("tp", "pp", "cp"):
                number = str(stated.get(axis, "")).split(" ")[0]
                assert parallel[axis] == max(1, int(number)) if number.isdigit() else True, id_
        replicas, rest = divmod(one.gpus, parallel["tp"] * parallel["pp"] * parallel["cp"])
        assert (rest, replicas % parallel["ep"]) == (0, 0), id_
        assert replicas * one.work.get("micro_batch", 1) <= one.work["batch"], id_
        batch = str(values.get("global_batch", "")).replace(",", "")
        assert one.work["batch"] == int(batch) if batch.isdigit() else True, id_


def test_every_step_takes_what_its_source_states() -> None:
    for id_, one in told().items():
        step, rate = (
            str(ENTRIES[id_].values.get(name) or "").replace(",", "").split(" ")[0]
            for name in ("step_time_s", "tokens_per_s_per_accelerator")
        )
        if step.replace(".", "").isdigit():
            assert one.seconds == float(step), id_
        elif rate.replace(".", "").isdigit():
            assert one.rate == pytest.approx(float(rate)), id_


def test_stages_hold_all_layers_with_embedding_and_loss_as_one_each_or_the_last_fewer() -> None:
    uneven = 0
    for id_, one in told().items():
        stages = one.work.get("pipeline", {}).get("stages")
        if not stages:
            continue
        uneven += 1
        assert sum(stages) == MODELS[one.work["model"]].layers, id_
        chunks = one.work["pipeline"].get("chunks", 1)
        assert len(stages) == one.work["parallelism"]["pp"] * chunks, id_
        with_ends = [stages[0] + 1, *stages[1:-1], stages[-1] + 1]
        assert len(set(with_ends)) == 1 or (len(set(stages[:-1])) == 1 and stages[-1] < stages[0])
    assert uneven > 10


@pytest.mark.parametrize(
    ("count", "asked", "together"), [(1, 3, 0), (2, 1, 0), (2, 2, 2), (3, 3, 3)]
)
def test_processes_answer_where_there_are_several_for_several(
    count: int, asked: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_answer", lambda entry, values: f"{entry.id} here")
    given: list[tuple[str, int]] = []

    def results(jobs):
        for one, name, memory, weight in jobs:
            given.append((name, memory))
            assert weight == 1
            yield one, ValueError("there")

    entries = [(SimpleNamespace(id=f"e{number}"), {}) for number in range(asked)]
    workers = SimpleNamespace(worker_count=count, results=results)
    order = list(reversed(range(asked)))
    found = list(training._answers(entries, order, workers))
    words = [f"e{number} here" if not together else "there" for number in order]
    assert [(number, str(answer)) for number, answer in found] == list(
        zip(order, words, strict=True)
    )
    assert all(isinstance(answer, Exception) is bool(together) for _, answer in found)
    assert given == [(f"e{number}", 0) for number in order][:together]


def test_what_constants_are_without_a_group_is_said_and_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = ENTRIES["mosaic_077"]
    group = published(entry).group
    first, other = sorted(TABLE)[:2]
    told = [
        Without(other, group, 1.0, ""),
        Without(first, group, 2.0, "nothing known"),
        Without(first, "another", 0.5, other),
    ]
    ran: list[object] = []

    def run(entries, jobs, done, values):
        ran.append(values)
        return ComparedSteps((), {})

    monkeypatch.setattr(accuracy, "_estimates_without", lambda *_: told)
    monkeypatch.setattr(accuracy, "run_steps", run)
    found = steps_left_out([entry], [entry], 1, lambda done, of: None)
    one, two = TABLE[first].value, TABLE[other].value
    assert ran == [{entry.id: {first: 2 * one}}]  # what stays as it was is not told again
    assert found.without == (
        f"{group}: {first} {2 * one:.3g}, as nothing else shows it",
        f"{group}: {other} {two:.3g}",
        f"another: {first} {one / 2:.3g}, that of {other}",
    )
