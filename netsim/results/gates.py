"""Gates: the least bus bandwidth that groups of nodes must reach, written in formats of other
programs.

A gate of 95 % is the bus bandwidth that a healthy machine reaches with a probability of at least 95
%. It follows from the expected bandwidth and from the errors of simulations of measured systems
that were excluded from every fit (`results/margins.py`).

Formats, each as its public source defines it:

- nccl-tests: the columns of a table of measured runs, and `NCCL_TESTS_MIN_BW` (nccl-tests,
  src/common.cu).
- aicr: `spec.validation.performance` of a recipe (github.com/NVIDIA/aicr,
  recipes/overlays/gb200-eks-training.yaml). Its check takes the bus bandwidth of the largest
  message (parseBandwidthFromLogs) and passes what reaches 0.9 of the value
  (validators/performance/nccl_all_reduce_bw_constraint.go, validateNcclAllReduceBw).
- Cluster Readiness Engine: a `Certification` with thresholds in CEL for each category
  (github.com/NVIDIA/cluster-readiness-engine, api/v1alpha1/certification_types.go, CategoryOptions;
  config/samples/cre_v1alpha1_certification_gb200_validation.yaml). `busBandwidthGBps` is the
  largest bus bandwidth of all message sizes
  (docs/designs/021-performance-threshold-enforcement.md).
- JUnit: a case for each size, skipped, because it was not measured yet. `netsim compare --junit`
  writes cases that pass or fail.
"""

from collections.abc import Iterator, Sequence
from math import floor
from typing import Literal

from netsim.base.errors import InputError
from netsim.base.files import csv_of
from netsim.base.units import format_size
from netsim.base.values import dataclass
from netsim.results import nccl_tests
from netsim.results.junit import JunitCase, junit_text
from netsim.results.row import NVLINK, Row

GroupKind = Literal["node", "rack", "racks", "all"]
MORE_COLUMNS = ("group", "nodes", "ranks", "fabric", "expected_busbw_gbps", "confidence")
AICR_TOLERANCE = 0.9  # aicr passes at this fraction of the value of a constraint
AICR_LARGEST = 16 * 2**30  # bytes of the largest message of aicr's check (8 GiB on GKE)
AICR_COLLECTIVE = "all_reduce"
CRE_VERSION = "nvcre.nvidia.com/v1alpha1"  # older versions: cre.nvidia.com
# Categories of the Cluster Readiness Engine (docs/concepts/catalog.md), by collective.
CRE_VARIANTS = {
    "all_reduce": "nccl-all-reduce",
    "all_gather": "nccl-all-gather",
    "alltoall": "nccl-alltoall",
}
CRE_SCALES: dict[GroupKind, str] = {
    "node": "intra-node",
    "rack": "intra-rack",
    "all": "full-scale",
}
CRE_UNITS = ((2**40, "T"), (2**30, "G"), (2**20, "M"), (2**10, "K"))


@dataclass(frozen=True)
class SizeGate:
    """The gate of one size: `row` has the expected bandwidth, `fraction` of which must
    be reached.
    """

    row: Row
    fraction: float

    @property
    def least_busbw(self) -> float:
        """The least bus bandwidth that must be reached, in GB/s, out of place."""
        return nccl_tests.half(self.row, nccl_tests.OUT_OF_PLACE)[2] * self.fraction

    @property
    def expected_busbw(self) -> float:
        """The expected bus bandwidth in GB/s, out of place."""
        return nccl_tests.half(self.row, nccl_tests.OUT_OF_PLACE)[2]


@dataclass(frozen=True)
class GroupGate:
    """The gates of one group of nodes with one collective, one for each size.

    `name` is the group in words, `fabric` the transport between its GPUs, `confidence` the
    probability with which a healthy machine passes. `has_nvlink_racks` says that racks are NVLink
    domains.
    """

    kind: GroupKind
    name: str
    nodes: int
    ranks: int
    collective: str
    fabric: str
    confidence: float
    sizes: tuple[SizeGate, ...]
    root: int = 0
    has_nvlink_racks: bool = False

    @property
    def largest(self) -> SizeGate:
        """The gate of the largest size."""
        return max(self.sizes, key=lambda gate: gate.row.size_bytes or 0)

    @property
    def average(self) -> float:
        """The mean of the least bus bandwidths in GB/s, over all sizes, out of place and in place,
        as nccl-tests averages.
        """
        halves = (nccl_tests.OUT_OF_PLACE, nccl_tests.IN_PLACE)
        values = [
            nccl_tests.half(gate.row, which)[2] * gate.fraction
            for gate in self.sizes
            for which in halves
        ]
        return sum(values) / len(values)


def gate_text(gates: Sequence[GroupGate], form: str) -> str:
    """The gates in the format `form` (`nccl-tests`, `aicr`, `cre` or `junit`).

    There must be at least one gate, and each must have at least one size.
    """
    if form == "aicr":
        return aicr_text(gates)
    if form == "cre":
        return cre_text(gates)
    if form == "junit":
        return junit_text("netsim expect --gate", list(_expectations(gates)))
    return csv_text_of_gates(gates)


def csv_text_of_gates(gates: Sequence[GroupGate]) -> str:
    """The gates as CSV: a line for each group and size, in the columns of measured runs and
    `MORE_COLUMNS`.
    """
    lines: list[Sequence[object]] = [(*nccl_tests.COLUMNS, *MORE_COLUMNS)]
    for group in gates:
        lines += [_csv_line(group, gate) for gate in group.sizes]
    return csv_of(lines)


def _csv_line(group: GroupGate, gate: SizeGate) -> list[object]:
    """The values of the CSV line of one group and size."""
    return [
        *nccl_tests.least_values(gate.row, gate.fraction, group.root),
        group.name,
        group.nodes,
        group.ranks,
        group.fabric,
        f"{gate.expected_busbw:.6g}",
        f"{group.confidence:g}",
    ]


def min_bandwidth_lines(gates: Sequence[GroupGate]) -> Iterator[str]:
    """Yield a line with the value of NCCL_TESTS_MIN_BW (GB/s) for each group.

    nccl-tests passes a run that reaches 0.9 of the value, so the value is the average of the gates
    divided by 0.9.
    """
    for group in gates:
        value = group.average / nccl_tests.PASSES
        yield (
            f"NCCL_TESTS_MIN_BW={value:.4g} for {group.collective} on {group.name} "
            f"({group.ranks} ranks): nccl-tests passes from {group.average:.4g} GB/s on average "
            "over these sizes"
        )


def aicr_text(gates: Sequence[GroupGate]) -> str:
    """The constraint for a recipe of aicr: that of all nodes, or of one NVLink domain.

    Raises an InputError for any collective but all_reduce, and for a single node.
    """
    others = [gate.collective for gate in gates if gate.collective != AICR_COLLECTIVE]
    if others:
        raise InputError(f"--gate-format aicr: checks {AICR_COLLECTIVE} only, got {others[0]}")
    group = _group_for_aicr(gates)
    if group.nodes < 2:
        raise InputError(
            "--gate-format aicr: its check needs at least two nodes, got one",
            hint="give --nodes, or another format",
        )
    check = "nccl-all-reduce-bw-nvls" if group.fabric == NVLINK else "nccl-all-reduce-bw"
    if group.has_nvlink_racks and group.fabric != NVLINK:
        check = "nccl-all-reduce-bw-net"
    least = group.largest.least_busbw
    size = group.largest.row.size_bytes or 0
    lines = [
        f"# {group.confidence * 100:g} % of healthy machines reach {least:.4g} GB/s: all_reduce of "
        f"{format_size(size)} on {group.name} ({group.ranks} ranks, {group.fabric}).",
        f"# aicr passes what reaches {AICR_TOLERANCE:g} of the value, which is therefore larger.",
        "spec:",
        "  validation:",
        "    performance:",
        "      checks:",
        f"        - {check}",
        "      constraints:",
        f"        - name: {check}",
        f'          value: ">= {_rounded_down(least / AICR_TOLERANCE)}"',
    ]
    return "\n".join(lines) + "\n"


def _group_for_aicr(gates: Sequence[GroupGate]) -> GroupGate:
    """The group that aicr's check uses: all nodes, or the NVLink domain of an NVLink system."""
    domains = [gate for gate in gates if gate.fabric == NVLINK]
    if domains:
        return min(domains, key=lambda gate: gate.largest.least_busbw)
    return max(gates, key=lambda gate: gate.nodes)


def aicr_warnings(gates: Sequence[GroupGate]) -> Iterator[str]:
    """Yield a warning if the gate's largest size is smaller than the message that aicr tests."""
    size = _group_for_aicr(gates).largest.row.size_bytes or 0
    if size < AICR_LARGEST:
        yield (
            f"warning: aicr takes the largest message, {format_size(AICR_LARGEST)} (8 GiB on GKE); "
            f"the gate is of {format_size(size)} (--sizes 16G)"
        )


def cre_text(gates: Sequence[GroupGate]) -> str:
    """A Certification with a threshold for each collective and scale that the engine can run.

    Raises an InputError for a collective without a category."""
    for gate in gates:
        if gate.collective not in CRE_VARIANTS:
            names = ", ".join(CRE_VARIANTS)
            raise InputError(
                f"--gate-format cre: has categories for {names}, got {gate.collective}"
            )
    runnable = [gate for gate in gates if _has_cre_scale(gate)]
    confidence = gates[0].confidence
    lines = [
        f"# {confidence * 100:g} % of healthy machines reach these bus bandwidths. The engine",
        "# compares the largest bus bandwidth of all message sizes. Set target.nodeSelector as",
        "# your nodes need.",
        *(f"# Left out: {text}" for text in dict.fromkeys(_left_out_of_cre(gates))),
        f"apiVersion: {CRE_VERSION}",
        "kind: Certification",
        "metadata:",
        "  name: netsim-gate",
        "spec:",
        "  target:",
        "    nodeSelector:",
        '      nvidia.com/gpu.present: "true"',
        "  categories:",
    ]
    for collective in dict.fromkeys(gate.collective for gate in runnable):
        for kind in CRE_SCALES:
            groups = [
                gate for gate in runnable if gate.collective == collective and gate.kind == kind
            ]
            if groups:
                lines += _cre_category(groups)
    return "\n".join(lines) + "\n"


def _has_cre_scale(gate: GroupGate) -> bool:
    """Whether the engine has a test scale for a group; for a rack, only if racks are NVLink
    domains.
    """
    return gate.kind in CRE_SCALES and (gate.kind != "rack" or gate.has_nvlink_racks)


def _left_out_of_cre(gates: Sequence[GroupGate]) -> Iterator[str]:
    """Yield a sentence for each group that the Cluster Readiness Engine cannot run, with the
    reason.
    """
    for gate in gates:
        if gate.kind == "racks":
            yield f"{gate.name}: no testScale runs pairs of racks."
        elif not _has_cre_scale(gate):
            yield f"{gate.name}: testScale intra-rack takes NVLink domains (nvidia.com/gpu.clique)."


def _cre_category(groups: Sequence[GroupGate]) -> list[str]:
    """The YAML lines of one category, for groups of one kind and collective.

    If racks have several sizes, the least gate is used.
    """
    least = min(max(gate.least_busbw for gate in group.sizes) for group in groups)
    group = groups[0]
    size = group.largest.row.size_bytes or 0
    lines = [
        "    - domain: communication",
        f"      variant: {CRE_VARIANTS[group.collective]}",
        "      options:",
        f"        testScale: {CRE_SCALES[group.kind]}",
    ]
    if group.has_nvlink_racks:
        lines.append("        enableMNNVL: true")
    return [
        *lines,
        f'        maxBytes: "{_cre_size(size)}"',
        "        thresholds:",
        f'          busBandwidthGBps: "value >= {_rounded_down(least)}"',
    ]


def _cre_size(size: int) -> str:
    """A size in bytes in the format of `maxBytes`: `16G`."""
    for unit, letter in CRE_UNITS:
        if size and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def _rounded_down(value: float) -> str:
    """A bandwidth in GB/s as text with one decimal (three digits below 10), rounded down."""
    decimals = 1 if value >= 10 else 3
    return f"{floor(value * 10**decimals) / 10**decimals:g}"


def _expectations(gates: Sequence[GroupGate]) -> Iterator[JunitCase]:
    """Yield a skipped JUnit case for each group and size, with the bandwidth that a measurement
    must reach.
    """
    for group in gates:
        suite = f"{group.collective} on {group.name} ({group.ranks} ranks, {group.fabric})"
        for gate in group.sizes:
            least = f"{gate.least_busbw:.4g}"
            yield JunitCase(
                suite=suite,
                name=format_size(gate.row.size_bytes or 0),
                outcome="skipped",
                message=(
                    f"not measured; at least {least} GB/s, expected {gate.expected_busbw:.4g} GB/s"
                ),
                properties={
                    "least_busbw_GBps": least,
                    "expected_busbw_GBps": f"{gate.expected_busbw:.4g}",
                    "confidence": f"{group.confidence:g}",
                },
            )
