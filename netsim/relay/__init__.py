"""Long rings whose lanes are never in each other's way: when they end, without a row a step.

Where no resource is asked for more than it has, whatever is under way at once, every row takes the
time that it takes alone. Then ends follow from one another by sums and maxima, which for a ring are
known in closed form. All of it is checked against the engine on the steps that are written.
"""

from netsim.relay.free import Costs, costs_of
from netsim.relay.replay import replayed

__all__ = ["Costs", "costs_of", "replayed"]
