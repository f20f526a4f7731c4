from io import StringIO

import pandas as pd
import pytest

from netsim.base.errors import InputError
from netsim.nccl.facts import Version, changes, facts_of, nearest_version, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.27", Version(2, 27)),
        ("2.27.x", Version(2, 27)),
        ("2.19.3+cuda12.3", Version(2, 19, 3)),
        ("NCCL 2.30.7", Version(2, 30, 7)),
        ("v2.18.5-1", Version(2, 18, 5)),
        ("22703", Version(2, 27, 3)),
    ],
)
def test_versions_are_read_as_people_write_them(text, version):
    assert parse_version(text) == version


@pytest.mark.parametrize("text", ["", "2", "two", "2.27.y", "2.27 or so", "2..7"])
def test_what_is_no_version_is_refused(text):
    with pytest.raises(InputError, match="expected an NCCL version such as"):
        parse_version(text)


def test_versions_outside_the_range_are_refused_and_have_a_nearest_one():
    with pytest.raises(InputError, match=r"NCCL 2\.8 is outside .* \(nearest: 2\.10\)"):
        facts_of(Version(2, 8))
    assert nearest_version(Version(2, 31)) == Version(2, 30, 7)
    assert nearest_version(Version(2, 30, 9)) == Version(2, 30, 9)


def test_every_release_of_the_range_has_facts():
    for minor in range(10, 31):
        assert facts_of(Version(2, minor)).algorithms[:2] == ("Tree", "Ring")


def test_changes_are_in_order():
    assert [since for since, _ in changes()] == sorted(since for since, _ in changes())


def test_facts_that_differ_between_versions():
    simple = [facts_of(Version(2, m)).hop_latency["NET"]["Tree"][2] for m in (12, 18, 19, 22, 23)]
    assert simple == [28.0, 14.0, 28.0, 28.0, 14.0]
    assert facts_of(Version(2, 17)).algorithms[-1] == "CollNetChain"
    assert facts_of(Version(2, 27)).rank("PXN") < facts_of(Version(2, 27)).rank("P2C")
    assert facts_of(Version(2, 28)).rank("PXN") > facts_of(Version(2, 28)).rank("P2C")


def test_a_version_in_a_table_stays_text_for_pandas():
    """As 2.20 it would be read as the number 2.2."""
    versions = [Version(2, 20).in_tables, Version(2, 19, 3).in_tables]
    table = pd.read_csv(StringIO("nccl_version\n" + "\n".join(versions)))
    assert table["nccl_version"].tolist() == ["2.20.x", "2.19.3"]
    assert [parse_version(text) for text in table["nccl_version"]] == [
        Version(2, 20),
        Version(2, 19, 3),
    ]
