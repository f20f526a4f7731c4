"""The names of ways through a cluster that a schedule may ask for.

""        the topology's own choice: NVLink or PCIe inside a host, each GPU's own NIC between hosts
"staged"  inside a host through its memory, as NCCL's shared-memory transport does
"pxn"     leave by the NIC on the receiver's rail, reached over NVLink and the GPU beside it
"nic:A"   leave by NIC A; "nic:A:B": and arrive at NIC B; "net": NICs even inside a host
"pxn:A:B" as "nic:A:B", with NIC A reached as that of "pxn"
"""

from netsim.topology.layout import TopologyError
from netsim.values import dataclass

EXPECTED = 'expected "", "staged", "pxn", "net", "nic:A", "nic:A:B" or "pxn:A:B"'


@dataclass(frozen=True, slots=True)
class Way:
    """A way taken apart; NICs are numbers inside their hosts, -1 for the GPU's own."""

    staged: bool = False
    relay: bool = False
    network: bool = False
    leave: int = -1
    arrive: int = -1


def parse_way(text: str) -> Way:
    """The meaning of a way's name."""
    simple = {
        "": Way(),
        "staged": Way(staged=True),
        "pxn": Way(relay=True),
        "net": Way(network=True),
    }
    if text in simple:
        return simple[text]
    head, *numbers = text.split(":")
    counts = {"nic": (1, 2), "pxn": (2,)}.get(head, ())
    if len(numbers) not in counts or not all(n.isdigit() for n in numbers):
        raise TopologyError(f"unknown way {text!r}: {EXPECTED}")
    arrive = int(numbers[-1]) if numbers[1:] else -1
    return Way(network=True, relay=head == "pxn", leave=int(numbers[0]), arrive=arrive)
