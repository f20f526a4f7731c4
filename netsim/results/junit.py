"""JUnit XML: test suites with cases that passed, failed or were skipped, as CI systems read them.

The layout is the one that Jenkins and GitLab read (`testsuites`, `testsuite`, `testcase` with
`failure` or `skipped`); properties of a case are written as pytest writes them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from netsim.base.values import dataclass, grouped

# Characters that XML 1.0 cannot hold, not even with an escape.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class JunitCase:
    """One case: `suite` and `name` say what was judged, `message` why it failed or was skipped.

    `properties` are names and values that are written with the case.
    """

    suite: str
    name: str
    outcome: Literal["passed", "failed", "skipped"] = "passed"
    message: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)


def junit_text(name: str, cases: Sequence[JunitCase]) -> str:
    """The cases as the text of an XML file; suites are in the order in which they appear.

    >>> print(junit_text("netsim compare", [JunitCase("a.txt", ">=64MiB")]), end="")
    <?xml version="1.0" encoding="UTF-8"?>
    <testsuites name="netsim compare" tests="1" failures="0" skipped="0">
     <testsuite name="a.txt" tests="1" failures="0" skipped="0">
      <testcase classname="a.txt" name="&gt;=64MiB"/>
     </testsuite>
    </testsuites>
    """
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites name={_attribute(name)} {_counts(cases)}>",
    ]
    for suite, members in grouped(cases, lambda case: case.suite).items():
        lines.append(f" <testsuite name={_attribute(suite)} {_counts(members)}>")
        for case in members:
            lines += _case_lines(case)
        lines.append(" </testsuite>")
    lines.append("</testsuites>")
    return "\n".join(lines) + "\n"


def _counts(cases: Sequence[JunitCase]) -> str:
    """The XML attributes that count all, failed and skipped cases of a suite."""
    outcomes = [case.outcome for case in cases]
    failures = outcomes.count("failed")
    skipped = outcomes.count("skipped")
    return f'tests="{len(cases)}" failures="{failures}" skipped="{skipped}"'


def _case_lines(case: JunitCase) -> list[str]:
    """The XML lines of one case."""
    start = f"  <testcase classname={_attribute(case.suite)} name={_attribute(case.name)}"
    inside = []
    if case.properties:
        inside.append("   <properties>")
        for key, value in case.properties.items():
            inside.append(f"    <property name={_attribute(key)} value={_attribute(value)}/>")
        inside.append("   </properties>")
    if case.outcome != "passed":
        tag = "failure" if case.outcome == "failed" else "skipped"
        text = escape(_NOT_XML.sub("?", case.message))
        inside.append(f"   <{tag} message={_attribute(case.message)}>{text}</{tag}>")
    if not inside:
        return [f"{start}/>"]
    return [f"{start}>", *inside, "  </testcase>"]


def _attribute(text: str) -> str:
    """A text as the value of an XML attribute, escaped and in quotes."""
    return quoteattr(_NOT_XML.sub("?", text))
