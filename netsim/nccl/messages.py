"""What a network's library makes of a message: how its size decides the way it is handed over.

InfiniBand's verbs have one way for all sizes, and their costs are in `mechanism`. libfabric's CXI
provider, by which NCCL uses Slingshot, has several; how long each takes is in `netsim.constants`,
with the runs that show it.
"""

from dataclasses import replace

from netsim.constants import value
from netsim.nccl.settings import Settings
from netsim.values import dataclass

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

# Slingshot, libfabric's CXI provider. A request of Cassini holds some bytes of data. Where receives
# are matched in software, messages beyond some size wait for the receiver to ask, and small ones
# are copied out of a buffer of the provider's. Rings show how long messages keep a NIC; trees with
# one message a connection do not.
CXI = MessagePath(
    inline_bytes=int(value("cxi.inline_bytes")),
    fetch=value("cxi.fetch"),
    eager_bytes=int(value("cxi.eager_bytes")),
    handling=Handling(ll=value("cxi.handling.ll"), simple=value("cxi.handling.simple")),
)


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
    notice, post, handling = value("cxi.notice"), value("cxi.post"), CXI.handling
    if settings.cxi_alternative_read:
        handling = replace(handling, read=value("cxi.alternative_read"))
    if not settings.cxi_software_match:
        return Plugin(replace(CXI, handling=handling), notice, post)
    eager, first = value("cxi.software.eager"), value("cxi.software.first")
    handling = replace(handling, eager=eager, first=first)
    path = replace(CXI, rendezvous=value("cxi.software.rendezvous"), handling=handling)
    return Plugin(path, notice, post, value("cxi.software.match"))


VERBS = Plugin()
PLUGINS = {"slingshot": cxi}


def plugin_of(transport: str, settings: Settings) -> Plugin:
    """How NCCL's messages travel on a transport."""
    make = PLUGINS.get(transport)
    return make(settings) if make else VERBS
