"""The compiled engine: the event loop of the definition, as machine code over the arrays.

It shares no solving code with the engine that defines the model, and is checked against it.
"""

from netsim.engines.compiled.engine import Simulator, run, run_operations

__all__ = ["Simulator", "run", "run_operations"]
