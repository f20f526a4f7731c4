"""Why a run takes as long as it does: where its time goes, and what would change it.

Knows Program, Timeline and engines only, so that anything that was placed can be explained.
"""

from netsim.explain.explanation import Explanation, explain
from netsim.explain.parts import CAUSES, Segment, Split, split_path
from netsim.explain.whatif import Answer, what_if

__all__ = [
    "CAUSES",
    "Answer",
    "Explanation",
    "Segment",
    "Split",
    "explain",
    "split_path",
    "what_if",
]
