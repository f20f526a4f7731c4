"""What a cluster costs and draws, by its parts: switches' ports, cables, optics, NICs, GPUs."""

from netsim.lazy import promised

TYPE_CHECKING = False

if TYPE_CHECKING:
    from netsim.costs.bill import Bill, bill_of
    from netsim.costs.prices import Prices, load_prices

__getattr__ = promised(
    __name__,
    bill="Bill bill_of",
    prices="Prices load_prices",
)

__all__ = ["Bill", "Prices", "bill_of", "load_prices"]
