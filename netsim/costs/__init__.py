"""What a cluster costs and draws, by its parts: switches' ports, cables, optics, NICs, GPUs."""

from netsim.costs.bill import Bill, bill_of
from netsim.costs.prices import Prices, load_prices

__all__ = ["Bill", "Prices", "bill_of", "load_prices"]
