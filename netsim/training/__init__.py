"""A training step on a cluster: tasks and NCCL's collectives, simulated and written down."""
