"""Which NICs a variable such as NCCL_IB_HCA names: `mlx5_0:1,mlx5_1`, `^mlx5_2`, `=mlx5_1`.

Names are prefixes unless `=` makes them whole; `^` means all but these; a port follows a colon.
"""

from netsim.values import dataclass


@dataclass(frozen=True)
class NicNames:
    """The names of a variable, and how they are meant."""

    names: tuple[tuple[str, int | None], ...]
    excluded: bool = False
    exact: bool = False

    def admit(self, name: str, port: int) -> bool:
        """Whether NCCL may use a port of this name."""
        return self._named(name, port) != self.excluded

    def _named(self, name: str, port: int) -> bool:
        return any(
            (name == given if self.exact else name.startswith(given)) and number in (None, port)
            for given, number in self.names
        )


def nic_names(text: str) -> NicNames:
    """Read the value of NCCL_IB_HCA or NCCL_SOCKET_IFNAME."""
    rest = text.strip()
    excluded, rest = rest.startswith("^"), rest.removeprefix("^")
    exact, rest = rest.startswith("="), rest.removeprefix("=")
    found = []
    for word in rest.split(","):
        name, colon, port = word.strip().partition(":")
        if not name or (colon and not (port.isascii() and port.isdecimal())):
            raise ValueError(
                f"expected names such as mlx5_0,mlx5_1 or mlx5_0:1, after ^ or =, got {text!r}"
            )
        found.append((name, int(port) if colon else None))
    return NicNames(tuple(found), excluded, exact)
