"""`netsim topo`: list, show, draw, check, import and export machines and topologies."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import typer

from netsim.base.errors import InputError
from netsim.base.files import made_folder, write_text
from netsim.base.startup import at
from netsim.base.units import format_bandwidth, format_time
from netsim.cli import topo_subject, topo_text
from netsim.cli.output import print_lines, refuse_output_as_input, wrote
from netsim.cli.topo_subject import Subject, TopologyOptions, find_subject
from netsim.plots.topology.draw import plot_loads, plot_topology
from netsim.topology.cluster import Cluster
from netsim.topology.figures import graph_figures
from netsim.topology.foreign.formats import write_node_link
from netsim.topology.foreign.infragraph import write_infragraph
from netsim.topology.foreign.nccl_xml import write_system
from netsim.topology.graph import NODE_KINDS
from netsim.topology.host import Host
from netsim.topology.lint import lint_cluster, lint_topology
from netsim.topology.load import FOLDER, custom_yaml, graph_yaml, machine_yaml
from netsim.topology.machine import Machine
from netsim.topology.nccl_view import exported_system

MOST_CLASSES = 4  # kinds of hosts that are shown from inside


def show_topology(
    name: str, options: TopologyOptions, *, routes: bool = False, sources: bool = False
) -> None:
    """Print figures of a topology, tiers of switches, and path types as NCCL and nvidia-smi name
    them.

    With `routes`, also print how flows spread over links between switches; with `sources`, print
    only where each figure is from.
    """
    subject = _subject(name, options, routes=routes)
    print_lines(topo_text.source_lines(subject) if sources else _lines(subject))
    if routes and subject.cluster is not None:
        at("flows are counted")
        print_lines(topo_text.route_lines(subject.cluster))


def _subject(name: str, options: TopologyOptions, *, routes: bool = False) -> Subject:
    """The topology that a name and options select; prints notes about it.

    Raises an InputError if `routes` are wanted and it has no fabric.
    """
    subject = find_subject(name, options)
    print_lines(subject.notes, err=True)
    if routes and (subject.cluster is None or subject.cluster.fabric is None):
        raise InputError(f"--routes: {subject.name} has no fabric", hint="add --nodes 2 or more")
    return subject


def _lines(subject: Subject) -> Iterator[str]:
    """Yield the figures of a topology: those of its fabric, then those of each kind of host."""
    cluster = subject.cluster
    if cluster is None:
        yield from _graph_lines(subject)
        return
    if subject.hosts > 1:
        yield from topo_text.cluster_lines(subject.name, cluster)
    for number, host in enumerate(cluster.hosts[:MOST_CLASSES]):
        if subject.hosts > 1:
            yield f"\nInside {_hosts_of_kind(cluster, number)}: {host.machine.description}"
        else:
            yield f"{subject.name}: {host.machine.description}"
        yield from _host_lines(host)
    if len(cluster.hosts) > MOST_CLASSES:
        yield f"\n… and {topo_text.plural(len(cluster.hosts) - MOST_CLASSES, 'more kind')} of hosts"


def _hosts_of_kind(cluster: Cluster, number: int) -> str:
    """The hosts of kind `number` as text: `every host`, `node3`, or `node3 and 4 more`."""
    members = np.flatnonzero(cluster.host_class == number)
    first = int(members[0])
    count = len(members)
    if count == len(cluster.host_class):
        return "every host"
    return f"node{first}" if count == 1 else f"node{first} and {count - 1} more"


def _host_lines(host: Host) -> Iterator[str]:
    """Yield the figures of a host, and the matrix of paths between its devices."""
    yield from topo_text.labelled(
        [*topo_text.figures(host.machine), ("sources", topo_text.source_summary(host.machine))]
    )
    yield "\nPaths of GPUs as NCCL names them, and the NICs that each GPU uses:"
    yield from topo_text.columns(topo_text.path_matrix(host))
    yield from ("", *topo_text.LEGEND)
    yield "\nDevices as nvidia-smi topo -m shows them:"
    yield from topo_text.columns(topo_text.device_matrix(host))


def _graph_lines(subject: Subject) -> Iterator[str]:
    """Yield the figures of a graph, which has GPUs, perhaps switches, and links, but no hosts."""
    topology = subject.topology
    figures_of_graph = graph_figures(topology)
    kinds = np.bincount(topology.node_kinds, minlength=len(NODE_KINDS)).tolist()
    others = [f"{n} {kind}" for kind, n in zip(NODE_KINDS, kinds, strict=True) if n][1:]
    rates = sorted({float(rate) for rate in topology.links.bandwidth}, reverse=True)
    shown = ", ".join(format_bandwidth(rate) for rate in rates[:4]) + ", …" * (len(rates) > 4)
    low = float(figures_of_graph.out.min())
    high = float(figures_of_graph.out.max())
    span = "" if high - low <= 1e-9 * high else f"{format_bandwidth(low)} to "
    yield f"{subject.name}: a graph of {topo_text.plural(len(topology), 'GPU')}"
    yield from topo_text.labelled(
        [
            ("other nodes", ", ".join(others)),
            ("links", f"{len(topology.links)}, one direction each: {shown}"),
            ("out of a GPU", f"{span}{format_bandwidth(high)}"),
            (
                "bisection",
                f"{format_bandwidth(figures_of_graph.bisection)} from the first half of the GPUs",
            ),
            ("diameter", _diameter(figures_of_graph.diameter, figures_of_graph.latency)),
        ]
    )


def _diameter(hops: int, latency: float) -> str:
    """The longest of the shortest paths, in links and latency (s), as text; negative `hops`: not
    connected.
    """
    if hops < 0:
        return "none: not every GPU reaches every other"
    return f"{topo_text.plural(hops, 'link')}, {format_time(latency)}"


def lint_subject(name: str, options: TopologyOptions) -> None:
    """Print mistakes in a topology: far or missing NICs, narrow slots, oversubscription.

    Exits with code 1 if there are any.
    """
    if _linted(_subject(name, options)):
        raise typer.Exit(1)


def _linted(subject: Subject) -> bool:
    """Print what the rules find in a topology; return whether they find anything."""
    cluster = subject.cluster
    at("rules are asked")
    findings = lint_topology(subject.topology) if cluster is None else lint_cluster(cluster)
    hosts = max(1, subject.hosts)
    gpus = len(subject.topology)
    size_text = f"{topo_text.plural(hosts, 'host')}, {topo_text.plural(gpus, 'GPU')}"
    rows = [(one.place, one.rule, one.message) for one in findings]
    print_lines(topo_text.columns(rows) if rows else ())
    count = topo_text.plural(len(findings), "finding") if findings else "nothing found"
    typer.echo(f"{subject.name}: {count} ({size_text})", err=bool(findings))
    return bool(findings)


PICTURES = Path("reports") / "topologies"


def draw_topology(
    name: str,
    options: TopologyOptions,
    *,
    output: Path | None = None,
    result: Path | None = None,
    routes: bool = False,
) -> None:
    """Draw a topology as SVG and PNG, with fabric, NICs, PCIe, CPUs, GPUs and NVSwitches in rows.

    `result` is a folder of results whose link loads are drawn on it; `routes` adds a plot of flows
    on links.
    """
    subject = _subject(name, options, routes=routes)
    folder = output or PICTURES
    drawable = subject.cluster or subject.topology
    if result is not None and not result.exists():
        raise InputError(f"{result}: no such folder", hint="expected the results of netsim run")
    at("is drawn")
    drawn = plot_topology(subject.name, drawable, folder / subject.name, result=result)
    if routes and subject.cluster is not None:
        drawn += plot_loads(subject.name, subject.cluster, folder / f"{subject.name}-loads")
    wrote(*drawn)


def import_file(
    file: Path,
    *,
    gpu: str | None = None,
    nic: str | None = None,
    nics: str | None = None,
    output: Path | None = None,
) -> None:
    """Write a file of another program as a machine (or a network as a scenario), and print mistakes
    in it.
    """
    target = _target(
        output or Path(FOLDER) / f"{file.stem}.yaml", file, is_named=output is not None
    )
    imported = topo_subject.foreign(file, gpu=gpu, nic=nic, nics=nics)
    print_lines((*imported.notes, *topo_subject.unused_rate(file, imported, gpu, nic)), err=True)
    origin = f"# Imported from {file.name} ({topo_subject.FORMATS[imported.form]}).\n"
    if isinstance(imported.content, Machine):
        text = machine_yaml(imported.content)
        size = topo_text.plural(imported.content.gpu.count, "GPU")
        name = target.stem if target.parent == Path(FOLDER) else target.as_posix()
        subject_text = f"a machine with {size}"
        use = f"machine: {name}"
    else:
        text = graph_yaml(imported.content, target.stem)
        size = topo_text.plural(len(imported.content), "GPU")
        subject_text = f"a scenario with a graph of {size}"
        use = f"netsim run {target.as_posix()}"
    made_folder(target.parent)
    write_text(target, origin + text)
    typer.echo(f"wrote {target.as_posix()}: {subject_text}; use it as {use}")
    _linted(topo_subject.imported(target.stem, imported, TopologyOptions(), file))


def _target(path: Path, source: Path, *, is_named: bool) -> Path:
    """The file to write. Raises an InputError if it is read as well, or exists and `-o` does not
    name it.
    """
    refuse_output_as_input(path, [source])
    if path.suffix not in (".yaml", ".yml"):
        raise InputError(f"{path}: expected a file that ends in .yaml")
    if path.exists() and not is_named:
        raise InputError(f"{path}: exists already", hint="name another file with -o")
    return path


def export_file(name: str, form: str, options: TopologyOptions, output: Path | None = None) -> None:
    """Write a topology as a file of another program, to `output` or standard output."""
    subject = _subject(name, options)
    if output is not None:
        refuse_output_as_input(output, subject.files)
    text = _exported(subject, form)
    if output is None:
        sys.stdout.write(text)
        return
    made_folder(output.parent)
    wrote(write_text(output, text))


def _exported(subject: Subject, form: str) -> str:
    """The text of a topology in the format `form` of another program."""
    if form == "json":
        return write_node_link(subject.topology)
    if form == "infragraph":
        return write_infragraph(subject.topology)
    cluster = subject.cluster
    if form == "custom":
        if cluster is None or cluster.fabric is None:
            raise InputError(f"{subject.name} has no fabric", hint="add --nodes 2 or more")
        return custom_yaml(subject.section, cluster.fabric, cluster.ports, cluster.routing)
    if cluster is None:
        raise InputError(f"{subject.name}: a graph without hosts; NCCL XML describes a host")
    if subject.hosts > 1 and len(set(cluster.domain.tolist())) > 1:
        raise InputError(
            f"{subject.name}: {subject.hosts} hosts; NCCL XML describes one, so leave --nodes out"
        )
    print_lines(_left_out(subject), err=True)
    return write_system(exported_system(cluster, 0))


def _left_out(subject: Subject) -> Iterator[str]:
    """Yield a note about rates of links in the cluster section that NCCL's XML cannot express."""
    config = subject.config
    if config is None:
        return
    faults = [fault.link for fault in config.faults if fault.link]
    overrides = [override.link for override in config.overrides if override.link]
    if faults or overrides:
        yield (
            "not in the file, which has the rates of a healthy machine: faults and overrides of "
            f"links ({', '.join([*faults, *overrides])})"
        )
