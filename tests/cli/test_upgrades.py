"""What another version of NCCL changes, by size: its choice, by the vectors of NCCL's own rules,
the time, and the rules behind it.
"""

import re

import pytest

from tests.cli.command import netsim
from tests.nccl.nccl_oracles import DATA, rows_of

NEW = "2.30"  # whose choices the vectors are
NAMES = {"all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter"}


def sides(out: str) -> dict[int, list[str]]:
    """Algorithm and protocol of either side by size."""
    lines = (line.split() for line in out.splitlines() if not line.startswith("#"))
    pair = re.compile(r"\b([A-Z]\w+) (LL128|LL|Simple)\b")
    return {
        int(words[0]): [" ".join(one) for one in pair.findall(" ".join(words))] for words in lines
    }


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "nodes", "collective"),
    [
        ("h100_8nic", 1, "all_reduce"),
        ("h100_8nic", 2, "all_reduce"),
        ("a100_8nic", 2, "all_gather"),
        ("b200_8nic", 1, "reduce_scatter"),
    ],
)
def test_choices_of_the_newer_version_are_those_of_the_vectors(
    config: str, nodes: int, collective: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row
        for row in rows_of("choice_vectors.csv", config, nodes)
        if row["coll"] == NAMES[collective]
    ]
    steps = [(int(row["from_bytes"]), f"{row['algo']} {row['proto']}") for row in rows]
    around = [size for first, _ in steps[1:] for size in (first // 2, first)]
    asked = [256, *around]
    done = netsim(
        capsys,
        "expect",
        DATA / "topo" / f"{config}.xml",
        collective,
        "--nodes",
        nodes,
        "--sizes",
        ",".join(map(str, asked)),
        "--nccl",
        f"2.18,{NEW}",
    )
    assert done.code == 0, done.err
    expected = {size: [it for first, it in steps if first <= size][-1] for size in asked}
    assert {size: pair[1] for size, pair in sides(done.out).items()} == expected


@pytest.mark.slow
def test_an_upgrade_tells_choice_time_and_rules(capsys: pytest.CaptureFixture[str]) -> None:
    ask = ("dgx-h100", "all_reduce", "--sizes", "1M,64M")
    done = netsim(capsys, "expect", *ask, "--nccl", "2.18, 2.27")
    alone = [netsim(capsys, "expect", *ask, "--nccl", one).out for one in ("2.18", "2.27")]
    for place, out in enumerate(alone):
        own = [line.split() for line in out.splitlines() if not line.startswith("#")]
        both = [line.split() for line in done.out.splitlines() if not line.startswith("#")]
        times = [
            (float(words[1 + place]), float(one[3])) for words, one in zip(both, own, strict=True)
        ]
        assert all(a == pytest.approx(b, rel=1e-3) for a, b in times)
    assert "# A: dgx-h100 with NCCL 2.18" in done.out
    assert "differ in: " in done.out
    assert "p2p rounds" in done.out
    same = netsim(capsys, "expect", *ask, "--nccl", "2.27,2.27").out
    assert "differ in: nothing that is modelled" in same
    two = netsim(capsys, "diff", "dgx-h100", "dgx-h100", "--sizes", "1M", "--nccl", "2.18,2.27")
    assert two.out.splitlines()[3].split()[:5] == done.out.splitlines()[3].split()[:5]


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("expect", "dgx-h100", "all_reduce", "--nccl", "2.18,2.27x"), "expected an NCCL version"),
        (("expect", "dgx-h100", "all_reduce", "--nccl", "2.18,"), "expected an NCCL version"),
        (("expect", "dgx-h100", "all_reduce", "--nccl", "2.1,2.2,2.3"), "expected one version"),
        (("expect", "dgx-h100", "all_reduce", "--nccl", "2.18,2.27", "--why", "1M"), "goes alone"),
        (("diff", "dgx-h100", "quickstart#ring", "--nccl", "2.18,2.27"), "are of two topologies"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = netsim(capsys, *arguments)
    assert (done.code, said in done.err) == (2, True), done.err
