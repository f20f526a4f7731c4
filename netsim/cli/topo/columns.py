"""Text in columns: tables, and figures with their labels."""

from collections.abc import Sequence


def columns(rows: Sequence[tuple[str, ...]], *, right: Sequence[int] = ()) -> list[str]:
    """Rows as lines with columns of equal width; those in `right` end at their right edge."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            text.rjust(width) if column in right else text.ljust(width)
            for column, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def labelled(figures: Sequence[tuple[str, str]]) -> list[str]:
    """Figures below each other, labels to the left; those without a text are left out."""
    return [f"  {label:<22} {text}" for label, text in figures if text]


def plural(count: int, noun: str) -> str:
    """`1 host`, `2 hosts`, `3 switches`."""
    ending = "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{ending if count != 1 else ''}"
