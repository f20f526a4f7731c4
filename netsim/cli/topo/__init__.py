"""What `netsim topo` is made of: its verbs are in `verbs`; what other commands use stands alone."""
