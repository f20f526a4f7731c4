"""The parser's complaints in plain words: what is wrong with the YAML, where, and what to do.

PyYAML speaks of tokens and block ends; people who plan clusters do not.
"""

import yaml

from netsim.errors import ScenarioError

INDENTATION = "this line does not fit the indentation of those above it"
SECOND_COLON = "a second ':' in one line; put the value in quotes"
NO_COLON_ABOVE = "this line does not fit the one above it: a wrong indentation, or no ':' there"
AFTER_THE_END = "something follows the end of a value; put the whole value in quotes"

# Part of PyYAML's text, our words, and whether the place is where the construct was opened.
PLAIN_WORDS = (
    ("'\\t' that cannot start", "a tab indents this line; YAML takes spaces only", False),
    ("'%' that cannot start", "a value cannot start with '%'; put it in quotes", False),
    ("'@' that cannot start", "a value cannot start with '@'; put it in quotes", False),
    ("'`' that cannot start", "a value cannot start with '`'; put it in quotes", False),
    ("could not find expected ':'", "this line is no 'key: value' (a ':' is missing)", True),
    ("sequence entries are not allowed", "a list entry '- ' cannot stand here", False),
    ("expected '<document start>'", INDENTATION, False),
    ("expected the node content", "a value is missing here", False),
    ("expected ',' or ']'", "this list is not closed; a ',' or ']' is missing", True),
    ("expected ',' or '}'", "this mapping is not closed; a ',' or '}' is missing", True),
    ("found unexpected end of stream", "this quote is never closed", True),
    ("found unexpected document separator", "this quote is never closed", True),
    ("unknown escape character", "unknown escape in double quotes; use single quotes", False),
    ("found undefined alias", "an alias '*' to an anchor '&' that is not defined above it", False),
    ("second occurrence", "the same anchor '&' twice", False),
    ("but found another document", "a second document ('---') in one file", False),
    ("undefined tag handle", "YAML tags ('!') are refused", True),
)


class Refused(yaml.MarkedYAMLError):
    """YAML that is well formed, but that netsim does not take; `problem` is the text to print."""


def in_plain_words(error: yaml.YAMLError, name: str, text: str) -> ScenarioError:
    """The error for a text that is not YAML, at the place to look at."""
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position].split("\n")
        message = f"the control character U+{error.character:04X} cannot stand in YAML"
        return ScenarioError(message, source=name, line=len(before), column=len(before[-1]) + 1)
    if not isinstance(error, yaml.MarkedYAMLError):
        return ScenarioError("this is not YAML", source=name)
    problem, mark = error.problem or "", error.problem_mark
    if isinstance(error, Refused):
        return error_at(problem, name, mark)
    for part, words, at_start in PLAIN_WORDS:
        if part in problem:
            return error_at(words, name, (error.context_mark if at_start else None) or mark)
    before_mark = "" if mark is None else text[: mark.index].rpartition("\n")[2].strip()
    if "mapping values are not allowed" in problem:
        return error_at(SECOND_COLON if ":" in before_mark else NO_COLON_ABOVE, name, mark)
    if "expected <block end>" in problem:
        return error_at(AFTER_THE_END if before_mark else INDENTATION, name, mark)
    return error_at(f"this is not YAML: {problem}", name, mark)


def error_at(message: str, name: str, mark: yaml.Mark | None) -> ScenarioError:
    """An error at a mark of the parser, whose lines and columns count from 0."""
    if mark is None:
        return ScenarioError(message, source=name)
    return ScenarioError(message, source=name, line=mark.line + 1, column=mark.column + 1)
