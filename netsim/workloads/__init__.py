"""Training steps: what models compute and which collectives parallelism adds, as tasks on streams.

Nothing here knows links or NCCL: how long a collective takes and what it draws on is given from
outside when tasks become a Schedule.
"""
