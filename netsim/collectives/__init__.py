"""Collectives and the algorithms that implement them, as checkable schedules.

Nothing here knows links or times.
"""

from netsim.lazy import promised

TYPE_CHECKING = False

if TYPE_CHECKING:
    from netsim.collectives.algorithms import (
        ALGORITHMS,
        Algorithm,
        AlgorithmError,
        build,
        folds,
        parameters_of,
    )
    from netsim.collectives.collective import NAMES, Collective, CollectiveError
    from netsim.collectives.memory import VerificationError
    from netsim.collectives.races import RaceError, check_races
    from netsim.collectives.ranges import Expectation
    from netsim.collectives.relay import Relay
    from netsim.collectives.sizes import collective_of
    from netsim.collectives.sketch import Sketch
    from netsim.collectives.stands import Stands
    from netsim.collectives.state import States, render_text, states
    from netsim.collectives.verifier import verify
    from netsim.collectives.volume import volumes

__getattr__ = promised(
    __name__,
    algorithms="ALGORITHMS Algorithm AlgorithmError build folds parameters_of",
    collective="NAMES Collective CollectiveError",
    memory="VerificationError",
    races="RaceError check_races",
    ranges="Expectation",
    relay="Relay",
    sizes="collective_of",
    sketch="Sketch",
    stands="Stands",
    state="States render_text states",
    verifier="verify",
    volume="volumes",
)

__all__ = [
    "ALGORITHMS",
    "NAMES",
    "Algorithm",
    "AlgorithmError",
    "Collective",
    "CollectiveError",
    "Expectation",
    "RaceError",
    "Relay",
    "Sketch",
    "Stands",
    "States",
    "VerificationError",
    "build",
    "check_races",
    "collective_of",
    "folds",
    "parameters_of",
    "render_text",
    "states",
    "verify",
    "volumes",
]
