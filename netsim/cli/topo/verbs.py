"""`netsim topo`: machines and topologies listed, shown, drawn, checked, imported and exported.

Each verb has a module; what NAME means to all of them is in `subject`.
"""

from netsim.cli.topo.exchange import export_file, import_file
from netsim.cli.topo.lint import lint
from netsim.cli.topo.listing import list_machines
from netsim.cli.topo.plot import plot
from netsim.cli.topo.show import show

VERBS = {
    "list": list_machines,
    "show": show,
    "plot": plot,
    "lint": lint,
    "import": import_file,
    "export": export_file,
}
