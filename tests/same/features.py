"""Questions that are written out: one or a few for each feature of netsim, the same for every seed.

`tests/data/feature_questions.yaml` has them. They are small, so that a sample of 150 questions asks
all of them, and each asks for many answers: command lines on files, whose output and files are
compared. Drawn questions combine features in ways that nobody wrote out.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parents[1] / "data"
FEATURES = DATA / "feature_questions.yaml"
DIGESTS = DATA / "digest_questions.yaml"

Mapping = dict[str, Any]


@dataclass(frozen=True)
class FeatureQuestion:
    """What is asked about one feature: command lines, and the files that they read."""

    feature: str
    files: dict[str, str]
    commands: list[str]


def file_text(scenario: Mapping) -> str:
    """Return a scenario as the text of a file; JSON is YAML, and the same on every machine."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in scenario.items()]
    return "\n".join([*lines, ""])


@cache
def feature_questions() -> list[FeatureQuestion]:
    """Return the questions about features, in the order of their file."""
    entries = yaml.safe_load(FEATURES.read_text(encoding="utf-8"))
    digest_files = yaml.safe_load(DIGESTS.read_text(encoding="utf-8"))["files"]
    return [_question_of(entry, digest_files) for entry in entries]


def _question_of(entry: Mapping, digest_files: dict[str, str]) -> FeatureQuestion:
    files = {name: digest_files[name] for name in entry.get("borrow", ())}
    for name, content in entry.get("files", {}).items():
        files[name] = content if isinstance(content, str) else file_text(content)
    commands = entry["run"]
    if not all(isinstance(command, str) for command in commands):
        raise SystemExit(f"{FEATURES}: {entry['feature']}: expected command lines, got {commands}")
    return FeatureQuestion(entry["feature"], files, commands)
