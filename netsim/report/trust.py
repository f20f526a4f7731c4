"""How far the figures of a report can be trusted, in sentences."""

import re

import pandas as pd

from netsim.report.headline import blank
from netsim.validated import NOT_VALIDATED


def trust(good: pd.DataFrame) -> list[str]:
    """How far the figures can be trusted, a sentence for each way that they were validated."""
    lines = []
    for text, count in good["validated"].value_counts().items() if len(good) else ():
        lines.append(f"{rows_text(count)}: {_validation(str(text))}.")
    if "measured_time_us" in good.columns and good["measured_time_us"].notna().any():
        errors = pd.to_numeric(good["error_pct"], errors="coerce").dropna().abs()
        lines.append(
            f"{rows_text(len(errors))} with a measured time beside: median error "
            f"{errors.median():.1f} %, largest {errors.max():.1f} %."
        )
    if "approximation" in good.columns:
        lines += _approximations(good[~good["approximation"].map(blank)])
    return lines


def _validation(text: str) -> str:
    """What the column `validated` says, in words."""
    known = re.fullmatch(r"(\d+)% \((\d+ runs?)\)", text)
    if known:
        return (
            f"of this machine, network, collective and size range, {known[2]} on hardware "
            f"{'was' if known[2] == '1 run' else 'were'} simulated with a median error of "
            f"{known[1]} %"
        )
    near = re.fullmatch(r"not validated \((\w+): (\d+)%\)", text)
    if near:
        return (
            f"not validated; {near[1].replace('_', '-')} on the same machine, network and size "
            f"range has a median error of {near[2]} %"
        )
    if text == NOT_VALIDATED:
        return "not validated: no measured run of such a machine, network and size range"
    return text or "no hardware to hold it against: a textbook algorithm or graph"


def _approximations(rows: pd.DataFrame) -> list[str]:
    """Rows whose time is not of every loop or operation, and how far that may be off."""
    lines = []
    kinds = rows["approximation"].astype(str)
    for counts, words in ((r"\d+ of \d+ loops", "fewer loops"), (r"\d+", "some")):
        kinds = kinds.str.replace(counts, words, regex=True)
    for kind, some in rows.groupby(kinds, sort=False):
        worst = pd.to_numeric(some["approximation_pct"], errors="coerce").max()
        most = "" if blank(worst) else f", at most {worst:.2g} % off"
        lines.append(f"{rows_text(len(some))} approximated ({kind}){most}.")
    return lines


def rows_text(count: int) -> str:
    """A number of rows."""
    return f"{count:,} row{'' if count == 1 else 's'}"
