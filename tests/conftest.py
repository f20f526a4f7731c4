"""Settings for all tests: hypothesis derandomised, so that a failure is the same everywhere,
Ctrl-C heard by those that send it, also in a shell's background, where it is ignored, and nothing
recalled that another test has simulated.
"""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from netsim.cell import simulate

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def _nothing_recalled() -> None:
    simulate.forget()
