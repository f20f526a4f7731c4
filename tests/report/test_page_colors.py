"""The page of a report can be read in the light and the dark theme of a browser, and on a phone."""

import re
from pathlib import Path

import pytest

import netsim.report

STYLE = (Path(netsim.report.__file__).parent / "page" / "report.css").read_text()
DARK = "prefers-color-scheme:dark"
LEAST_CONTRAST = 4.5  # of text, by WCAG 2.1 level AA


def variables_of(theme: str) -> dict[str, str]:
    """The colors of a theme by their names; what the dark one does not set is that of the light."""
    blocks = re.findall(r":root\{([^}]*)\}", STYLE)
    assert len(blocks) == 2
    assert STYLE.index(DARK) < STYLE.index(blocks[1])
    light, dark = (dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})", block)) for block in blocks)
    return light if theme == "light" else light | dark


def luminance(color: str) -> float:
    """The relative luminance of `#rrggbb` or `#rgb` (0…1), as WCAG defines it."""
    digits = color[1:]
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    values = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colors, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#fff", "#000000") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("text", ["ink", "soft", "warn"])
@pytest.mark.parametrize("background", ["paper", "back", "hover"])
def test_text_stands_out_from_every_background(theme: str, text: str, background: str) -> None:
    colors = variables_of(theme)
    assert contrast(colors[text], colors[background]) >= LEAST_CONTRAST


def test_the_dark_theme_sets_every_color_and_not_for_print() -> None:
    blocks = re.findall(r":root\{([^}]*)\}", STYLE)
    light, dark = (set(re.findall(r"--(\w+):", block)) for block in blocks)
    assert light == dark
    assert f"@media screen and ({DARK})" in STYLE


def test_only_pictures_and_print_have_a_white_background_in_every_theme() -> None:
    screen = STYLE.partition("@media print")[0]
    rules = re.findall(r"([^{}]+)\{[^{}]*background:#fff", screen)
    assert [rule.strip() for rule in rules] == ["nav a:hover,nav a:focus-visible", "img"]


def test_pictures_scroll_in_their_own_box_on_a_narrow_screen() -> None:
    narrow = STYLE.partition("@media (max-width:640px)")[2]
    assert "figure{overflow-x:auto}" in narrow
    assert "min-width:100%" in narrow  # no wider than they are drawn: small ones fill the screen


def test_words_in_tables_are_not_broken_to_make_a_column_narrow() -> None:
    """`anywhere` lets a column become one letter wide, `break-word` breaks only what cannot fit."""
    assert "td{overflow-wrap:anywhere}" not in STYLE
    assert "main td{overflow-wrap:break-word}" in STYLE
