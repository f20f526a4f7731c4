"""netsim: a discrete-event simulator of collectives on GPU clusters."""
