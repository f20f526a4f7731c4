"""python -m tests.bench.noise: the constants of the noise that has a name, from what was measured.

A call or step lasts as long as the last of its GPUs: of N draws from a lognormal distribution the
largest is below F^-1(q^(1/N)) with probability q. Its two parameters are those for which the rise
from p50 to p90 and to p99 is the nearest to the measured ones (in logarithms). Every second system
of steps, and calls on other numbers of GPUs, are kept aside, and printed beside what they come to.
"""

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd

MEASURED = Path("scenarios/measured/noise.csv")
MEDIANS, SIGMAS = np.geomspace(1e-12, 1e-1, 331), np.linspace(0.1, 5, 246)
RISES = (0.9, 0.99)


def rises() -> pd.DataFrame:
    """By kind, system and number of GPUs: the median rise from p50 to p90 and to p99; of launches
    in seconds, of steps as a part.
    """
    table = pd.read_csv(MEASURED)
    by = np.where(table["what"] == "launch", 1e6, table["p50"])
    rose = table.assign(**{str(q): (table[f"p{q * 100:g}"] - table["p50"]) / by for q in RISES})
    return rose.groupby(["what", "system", "gpus"])[[*map(str, RISES)]].median().reset_index()


def rise(median, sigma, gpus: int, q: float):
    """What a lognormal distribution comes to."""
    z = [NormalDist().inv_cdf(part ** (1 / gpus)) for part in (q, 0.5)]
    return median * (np.exp(sigma * z[0]) - np.exp(sigma * z[1]))


def fitted(rows: pd.DataFrame) -> tuple[float, float]:
    """Median and sigma."""
    median, sigma = MEDIANS[:, None], SIGMAS[None, :]
    off = sum(
        np.log(rise(median, sigma, gpus, q) / row[str(q)]) ** 2
        for gpus, (_, row) in zip(rows["gpus"], rows.iterrows(), strict=True)
        for q in RISES
    )
    best = np.unravel_index(np.argmin(off), off.shape)
    return float(MEDIANS[best[0]]), float(SIGMAS[best[1]])


def parts() -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """By the start of the ids of constants: what they are fitted to, and what is kept aside."""
    table = rises()
    launches, steps = (table[table["what"] == what] for what in ("launch", "step"))
    found = {}
    for name, gpus, few in (("quiet", 16, True), ("production", 64, False)):
        mine = launches["gpus"] == gpus
        found[f"noise.{name}.launch"] = launches[mine], launches[~mine]
        some = steps[steps["gpus"] <= 1536] if few else steps[steps["gpus"] >= 4096]
        some = some.sort_values(["gpus", "system"])
        found[f"noise.{name}.compute"] = some.iloc[::2], some.iloc[1::2]
    return found


def main() -> None:
    """Print them."""
    for name, (rows, aside) in parts().items():
        median, sigma = fitted(rows)
        print(f"{name}: median {median:.3g}, sigma {sigma:.3g}")
        for kind, some in (("fitted", rows), ("aside", aside)):
            for _, row in some.iterrows():
                came = [rise(median, sigma, row["gpus"], q) for q in RISES]
                told = "; ".join(
                    f"p{q * 100:g} {row[str(q)]:.3g} measured, {one:.3g}"
                    for q, one in zip(RISES, came, strict=True)
                )
                print(f"  {kind} {row['system']}, {row['gpus']} GPUs: {told}")


if __name__ == "__main__":
    main()
