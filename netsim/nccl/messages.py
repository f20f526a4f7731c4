"""What a network's library makes of a message: how its size decides the way it is handed over.

InfiniBand's verbs have one way for all sizes, and their costs are in `mechanism`. libfabric's CXI
provider, by which NCCL uses Slingshot, has several; how long each takes is here, with the runs that
show it.
"""

from dataclasses import replace

from netsim.nccl.settings import Settings
from netsim.values import dataclass

MICRO = 1e-6
ANY = 1 << 62  # bytes: more than any message has


@dataclass(frozen=True, slots=True)
class Handling:
    """Seconds for which a NIC, with who serves it, is busy with a message after another one of its
    connection: completions of the one before, its receive buffer, the next request. `eager` is for
    one sent at once; `read` comes on top of others where the receiver reads the data, and `first`
    is what the first of those takes.
    """

    eager: float = 0.0
    ll: float = 0.0
    simple: float = 0.0
    read: float = 0.0
    first: float = 0.0

    def later(self, protocol: str, *, eager: bool) -> float:
        """The figure for a message of a protocol; LL128 is read as LL is."""
        if eager:
            return self.eager
        return self.read + (self.simple if protocol == "Simple" else self.ll)


NO_HANDLING = Handling()


@dataclass(frozen=True, slots=True)
class MessagePath:
    """The ways of messages by their bytes on the wire.

    Up to `inline_bytes` data travels in the request itself; beyond, the NIC spends `fetch` seconds
    on getting it. Up to `eager_bytes` it is sent at once; beyond, the receiver's side asks for it,
    which takes `rendezvous` seconds. A message that follows another is prepared meanwhile.
    """

    inline_bytes: int = ANY
    fetch: float = 0.0
    eager_bytes: int = ANY
    rendezvous: float = 0.0
    handling: Handling = NO_HANDLING

    def latency(self, wire_bytes: float, *, follows: bool) -> float:
        """Seconds before the bytes of a message move."""
        if follows:
            return 0.0
        late = self.rendezvous if wire_bytes > self.eager_bytes else 0.0
        return late + (self.fetch if wire_bytes > self.inline_bytes else 0.0)

    def busy(self, wire_bytes: float, protocol: str, *, follows: bool) -> float:
        """Seconds of the NIC for a message."""
        eager = wire_bytes <= self.eager_bytes
        if follows:
            return self.handling.later(protocol, eager=eager)
        return 0.0 if eager or protocol == "Simple" else self.handling.first


PLAIN = MessagePath()

# Slingshot, libfabric's CXI provider.
#
# A request of Cassini holds 192 bytes of data: trees of LL take about 1 us a hop more from 128
# bytes (256 on the wire) on (alps_gh200_64x4_all_reduce_1, polaris_a100_8x4_all_reduce_2).
# Where receives are matched in software, messages of more than 4 KiB wait for the receiver to ask:
# each hop of a tree takes 7.5-8.1 us more from 4 KiB of LL on, on 2 to 64 nodes of Alps, and 3 more
# for each further channel of a NIC; where the NIC matches, nothing of it is seen
# (polaris_a100_8x4_all_reduce_2).
# Rings show how long messages keep a NIC. all_gather and all_reduce on 8 x 4 A100 take 10-14 us
# a message and NIC from 8 KiB of LL to slices of 128 KiB of Simple, with two channels of a NIC
# twice that of one; of up to 2 KiB on the wire nothing. On 2 to 16 nodes of Alps LL takes 9-14 us
# with one to six channels a NIC, slices of 22-87 KiB of Simple 4-6: on AMD Simple takes twice as
# long as elsewhere, as its posts do in NCCL's own model. Trees with one message a connection show
# none of it.
CXI = MessagePath(
    inline_bytes=192,
    fetch=1.0 * MICRO,
    eager_bytes=4096,
    handling=Handling(ll=11.5 * MICRO, simple=5.0 * MICRO),
)
# Matched in software, even small messages take 9.3 us each (rings on 2 x 4 A100, 128 bytes to 16
# KiB), for they are copied out of a buffer of the provider's, and every hop takes 2.3 us more.
SOFTWARE_MATCH = 2.3 * MICRO
SOFTWARE_EAGER = 9.0 * MICRO
SOFTWARE_RENDEZVOUS = 4.5 * MICRO
SOFTWARE_FIRST = 3.0 * MICRO
# The alternative protocol by which the receiver reads: 16-18 us a message on 2 x 4 A100.
ALTERNATIVE_READ = 5.0 * MICRO
# A hop of a tree of 32 bytes takes 4.7 us on 8 x 4 A100 (polaris_a100_8x4_all_reduce_2), where with
# the notice and the post of verbs it would be 6.4.
NOTICE, POST = -1.0 * MICRO, -0.7 * MICRO


@dataclass(frozen=True, slots=True)
class Plugin:
    """How a network's library works: the path of messages, and what it takes less or more than
    verbs until a proxy has `notice` of data, for a `post`, and until data is `matched`.
    """

    path: MessagePath = PLAIN
    notice: float = 0.0
    post: float = 0.0
    matched: float = 0.0


def cxi(settings: Settings) -> Plugin:
    """The CXI provider, with what the user has set of it."""
    handling = CXI.handling
    if settings.cxi_alternative_read:
        handling = replace(handling, read=ALTERNATIVE_READ)
    if not settings.cxi_software_match:
        return Plugin(replace(CXI, handling=handling), NOTICE, POST)
    handling = replace(handling, eager=SOFTWARE_EAGER, first=SOFTWARE_FIRST)
    path = replace(CXI, rendezvous=SOFTWARE_RENDEZVOUS, handling=handling)
    return Plugin(path, NOTICE, POST, SOFTWARE_MATCH)


VERBS = Plugin()
PLUGINS = {"slingshot": cxi}


def plugin_of(transport: str, settings: Settings) -> Plugin:
    """How NCCL's messages travel on a transport."""
    make = PLUGINS.get(transport)
    return make(settings) if make else VERBS
