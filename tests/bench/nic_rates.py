"""python -m tests.bench.nic_rates: how much of their NICs' line rate rings reached, by nodes.

For each healthy run between hosts whose collective was measured at 512 MiB and more, the largest
size gives the bytes that one NIC sends a second if a ring enters and leaves each host by its NICs:
the bus bandwidth divided by the NICs of a host. Sends to all cross the network with the fraction of
data for other hosts. Runs of trees are left out, because their NICs carry other amounts.
"""

from pathlib import Path

from netsim.measured.index import IndexEntry, read_index

INDEX = Path("scenarios/measured/index.yaml")
LEAST_SIZE = 512 * 2**20
RINGS = ("all_gather", "reduce_scatter")


def largest_time(entry: IndexEntry) -> tuple[int, float]:
    """The largest size of a run in bytes, and its time out of place in seconds."""
    times = [
        (row.size_bytes, row.out_of_place) for row in entry.rows() if row.out_of_place is not None
    ]
    return max(times)


def nic_rate(entry: IndexEntry, size: int, seconds: float) -> float:
    """The bytes that one NIC sends a second during a ring, or sends to all."""
    shape = entry.values["topology"]
    gpus = shape["gpus_per_node"]
    algorithm_rate = size / seconds
    if entry.text("collective") == "alltoall":
        sent_by_host = gpus * algorithm_rate * (entry.ranks - gpus) / entry.ranks
    else:
        sent_by_host = entry.bus_factor() * algorithm_rate
    return float(sent_by_host / shape["nics_per_node"])


def is_counted(entry: IndexEntry) -> bool:
    """Whether the NICs of a run carry what `nic_rate` assumes."""
    shape = entry.values["topology"]
    if shape.get("nodes", 1) < 2 or not entry.healthy or not shape.get("nics_per_node"):
        return False
    collective = entry.text("collective")
    is_ring = collective in RINGS or entry.id.endswith("_ring") or shape["gpus_per_node"] == 1
    return collective == "alltoall" or (collective != "sendrecv" and is_ring)


def main() -> None:
    """Print one line for each run, in the order of the number of nodes."""
    print(f"{'run':<40}{'nodes':>6}{'NICs':>6}{'size':>9}{'GB/s':>8}{'of line rate':>14}")
    entries = [entry for entry in read_index(INDEX) if is_counted(entry)]
    for entry in sorted(entries, key=lambda entry: entry.values["topology"]["nodes"]):
        size, seconds = largest_time(entry)
        if size < LEAST_SIZE * 0.99:
            continue
        shape = entry.values["topology"]
        rate = nic_rate(entry, size, seconds)
        fraction = rate / (shape["nic_gbps"] / 8 * 1e9)
        print(
            f"{entry.id:<40}{shape['nodes']:>6}{shape['nics_per_node']:>6}"
            f"{size / 2**30:>6.3g}GiB{rate * 1e-9:>8.1f}{fraction:>13.0%}"
        )


if __name__ == "__main__":
    main()
