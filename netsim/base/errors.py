"""The errors that netsim raises: each is one clear text and an exit code.

Only the command line prints errors and exits; it needs `str(error)` and `error.exit_code`. This
module does not know how files are read or how simulations run.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence

Tell = Callable[[str], None]  # takes a message for the user, of one line
SHOWN_ERRORS = 20
SHOWN_CHARACTERS = 60


class NetsimError(Exception):
    """The base class of all errors that netsim raises on purpose.

    `exit_code` is the exit code of the command line: 2 for wrong input, 3 for a simulation that
    cannot finish or contradicts itself.

    >>> issubclass(StalledError, NetsimError), NetsimError.exit_code
    (True, 2)
    """

    exit_code = 2


class InputError(NetsimError):
    """Input that cannot be used: what the command line prints as one message.

    `message` says what is wrong, `hint` how to mend it.

    >>> print(InputError("nodes: expected at least 1, got 0", hint="nodes: 1 is one host"))
    nodes: expected at least 1, got 0 (nodes: 1 is one host)
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ScenarioError(InputError):
    """One mistake in a file, with its place.

    `source` is the name of the file, `line` and `column` count from 1, `field` is the key with
    dots. Parts that are unknown are omitted from the text.

    >>> print(ScenarioError("unknown key", source="a.yaml", line=3, column=5, field="cluster.node"))
    a.yaml:3:5: cluster.node: unknown key
    """

    def __init__(
        self,
        message: str,
        *,
        source: str = "",
        line: int | None = None,
        column: int | None = None,
        field: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.source = source
        self.field = field
        self.line = line
        self.column = column

    @property
    def errors(self) -> tuple["ScenarioError", ...]:
        """The single mistakes behind this error: here the error itself."""
        return (self,)

    def __str__(self) -> str:
        numbers = [str(number) for number in (self.line, self.column) if number is not None]
        place = ":".join([self.source, *numbers] if self.source else numbers)
        return ": ".join(part for part in (place, self.field, super().__str__()) if part)


class ScenarioErrors(ScenarioError):
    """Several mistakes in one error, printed one on each line; its place is that of the first
    mistake.
    """

    def __init__(self, errors: Sequence[ScenarioError]) -> None:
        first = errors[0]
        super().__init__(
            first.message,
            source=first.source,
            line=first.line,
            column=first.column,
            field=first.field,
            hint=first.hint,
        )
        self.args = (tuple(errors),)

    @property
    def errors(self) -> tuple[ScenarioError, ...]:
        """The single mistakes, in the order in which they are in the file."""
        mistakes: tuple[ScenarioError, ...] = self.args[0]
        return mistakes

    def __str__(self) -> str:
        lines = [str(error) for error in self.errors[:SHOWN_ERRORS]]
        left_out = len(self.errors) - len(lines)
        return "\n".join([*lines, f"... and {left_out} more errors"] if left_out else lines)


def joined(errors: Iterable[ScenarioError]) -> ScenarioError:
    """One error for several mistakes (at least one); equal mistakes are listed once."""
    mistakes = {str(mistake): mistake for error in errors for mistake in error.errors}
    distinct = list(mistakes.values())
    return distinct[0] if len(distinct) == 1 else ScenarioErrors(distinct)


class NoRoomError(ScenarioError):
    """A cell of a scenario needs more memory than there is."""


class StalledError(NetsimError):
    """A simulation that cannot finish; the message names the ranks, rows and links that wait.

    `dead_links` are the names of all links without capacity that rows wait for.

    >>> error = StalledError("rank 0 waits for leaf0->spine0", dead_links=["leaf0->spine0"])
    >>> error.exit_code, error.dead_links
    (3, ('leaf0->spine0',))
    """

    exit_code = 3

    def __init__(self, message: str, *, dead_links: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.dead_links = tuple(dead_links)


class LostError(NetsimError):
    """A part of a command was lost: its process died, or there was no memory for it."""

    exit_code = 1


def silent(text: str) -> None:
    """Drop a message: the `Tell` of callers whose user should not see any."""


class InvariantError(NetsimError):
    """A result breaks an invariant that all results must satisfy: a bug in netsim, not in the
    input.

    `about` names the operation and size, `broken` the invariants.

    >>> error = InvariantError("all_reduce of 1 MiB", ["a link carries more than it can"])
    >>> error.exit_code, error.broken
    (3, ('a link carries more than it can',))
    """

    exit_code = 3

    def __init__(self, about: str, broken: Sequence[str]) -> None:
        super().__init__(about, tuple(broken))
        self.about = about
        self.broken = tuple(broken)

    def __str__(self) -> str:
        meaning = "an invariant of netsim does not hold: a bug in netsim, not in your input"
        request = f"({meaning}; please report it with the command that shows it)"
        return f"{self.about}: {'; '.join(self.broken)} {request}"


def suggest(word: str, choices: Iterable[str]) -> str:
    """The text ` (did you mean X?)` with the choice nearest to `word`; "" if none is near."""
    near = nearest(word, choices)
    return "" if near is None else f" (did you mean {near}?)"


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice nearest to `word`; None if none is near.

    A choice that differs only in case and separators comes first, then a similar one, then one that
    `word` abbreviates.
    """
    folded: dict[str, str] = {}
    for choice in choices:
        folded.setdefault(_fold(choice), choice)
    if _fold(word) in folded:
        return folded[_fold(word)]
    close = difflib.get_close_matches(_fold(word), folded, n=1, cutoff=0.6)
    if close:
        return folded[close[0]]
    meant = [choice for choice in folded if _is_short_for(_fold(word), choice)]
    return folded[meant[0]] if len(meant) == 1 else None


def _is_short_for(word: str, choice: str) -> bool:
    """Whether `word` abbreviates `choice`: two or three of its letters in order, from the first on.

    >>> _is_short_for("ib", "infiniband"), _is_short_for("nb", "infiniband")
    (True, False)
    """
    if not 2 <= len(word) <= 3 or word[0] != choice[:1] or not choice.isalpha():
        return False
    letters = iter(choice)
    return all(letter in letters for letter in word)


def shown(value: object) -> str:
    """A value of a file as error messages show it: 'text', 12, true, a list, nothing."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        cut = value if len(value) <= SHOWN_CHARACTERS else value[:SHOWN_CHARACTERS] + "..."
        return repr(cut)
    if isinstance(value, int | float):
        return str(getattr(value, "text", value))
    if isinstance(value, Mapping):
        return "a mapping"
    return "a list" if isinstance(value, list | tuple) else repr(value)


def _fold(word: str) -> str:
    return word.casefold().replace("_", "-").replace(" ", "-")
