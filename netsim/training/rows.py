"""The row of a training step in results.csv."""

from netsim.results import Row
from netsim.scenario.clusters import cluster_label, node_count
from netsim.scenario.training import Training
from netsim.training.breakdown import bound_of
from netsim.training.run import Step
from netsim.version import MODEL_VERSION


def step_row(step: Step) -> Row:
    """The line of results.csv; what a step has beside its time is in its other files."""
    prepared = step.prepared
    scenario, work = prepared.cell.scenario, prepared.work
    return Row(
        scenario=scenario.name or "",
        cell=prepared.cell.id,
        topology=cluster_label(scenario.cluster),
        nodes=node_count(scenario.cluster),
        gpus_per_node=prepared.gpus_per_node,
        ranks=prepared.setting.grid.size,
        workload=f"training {work.label}",
        dtype=work.dtype if isinstance(work, Training) else "",
        launch=scenario.launch_costs().style,
        nccl_version=scenario.nccl.version,
        step_time_us=step.seconds * 1e6,
        bound_by=bound_of(step.breakdown),
        validated="not validated",
        approximation=step.approximation,
        rows=len(step.program),
        engine=step.engine,
        seed=scenario.seed,
        model_version=MODEL_VERSION,
        axes=prepared.cell.axes,
    )
