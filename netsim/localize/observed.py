"""The observations of all tests: which sizes are compared, and their deviations from the
simulation.
"""

from collections.abc import Sequence
from math import log

import numpy as np

from netsim.base.startup import at
from netsim.localize.evidence import NOISY_COLLECTIVES, Longs, Observations
from netsim.localize.node_tests import COMPUTE, SizeQuestion, TimedTest
from netsim.localize.predictions import LARGE_NODES, Key, Predictor

MOST_SIZES = 3  # of a test that are simulated
LEAST_SIZE = 2**16  # bytes below which times say little of parts


class ObservedTests:
    """Timed tests as observations, sorted by test.

    Attributes:
        observations: deviations, see `Observations`.
        questions: for each observation, the number of its test and its size.
        classes: shape and size of each class of observations.
        tests_of_node: numbers of the tests that each node was in.
    """

    def __init__(self, predictor: Predictor, tests: Sequence[TimedTest]) -> None:
        self.predictor = predictor
        self.tests = tests
        self.questions: list[tuple[int, SizeQuestion]] = []
        self.classes: list[tuple[Key, SizeQuestion]] = []
        self.observations = self._observe()
        self.tests_of_node: dict[int, list[int]] = {}
        for number, timed in enumerate(tests):
            for node in timed.test.nodes:
                self.tests_of_node.setdefault(node, []).append(number)

    def _observe(self) -> Observations:
        """Return the deviations of all tests at the sizes that are compared."""
        deviation: list[float] = []
        log_of: list[int] = []
        class_of: list[int] = []
        is_noisy: list[bool] = []
        is_free: list[bool] = []
        classes: dict[tuple[Key, SizeQuestion], int] = {}
        for number, timed in enumerate(self.tests):
            at(timed.label, number, len(self.tests))
            shape: Key = (COMPUTE,)
            if timed.test.collective != COMPUTE:
                shape = self.predictor.shape(timed.test)
            for question in simulated_sizes(timed):
                healthy = self.predictor.healthy(timed.test, question)
                key = (shape, question)
                if key not in classes:
                    classes[key] = len(classes)
                    is_free.append(timed.test.collective == COMPUTE)
                self.questions.append((number, question))
                deviation.append(log(timed.times[question] / healthy))
                log_of.append(number)
                class_of.append(classes[key])
                is_noisy.append(timed.test.collective in NOISY_COLLECTIVES)
        self.classes = list(classes)
        return Observations(
            np.array(deviation, dtype=float),
            np.array(log_of, dtype=np.int64),
            np.array(class_of, dtype=np.int64),
            np.array(is_noisy, dtype=bool),
            np.array(is_free, dtype=bool),
        )

    def places_of_test(self, number: int) -> Longs:
        """Return the numbers of the observations of a test."""
        start, end = np.searchsorted(self.observations.log_of, [number, number + 1])
        return np.arange(start, end)


def simulated_sizes(timed: TimedTest) -> list[SizeQuestion]:
    """Return the sizes of a test that are compared with the simulation.

    All sizes of step times are. Of other tests, only sizes from `LEAST_SIZE` on are considered, if
    there are any. At most `MOST_SIZES` of them are returned: the largest one, and smaller ones at
    equal distances in the upper two thirds of the list. Of a test of many nodes, whose simulations
    take long, it is only the largest one.
    """
    if timed.test.collective == COMPUTE:
        return list(timed.times)
    large = sorted(
        (question for question in timed.times if question.size_bytes >= LEAST_SIZE),
        key=lambda question: (question.size_bytes, question.is_in_place),
    )
    questions = large or sorted(timed.times, key=lambda question: question.size_bytes)
    if timed.test.node_count > LARGE_NODES:
        return questions[-1:]
    if len(questions) <= MOST_SIZES:
        return questions
    places = np.linspace(len(questions) / 3, len(questions) - 1, MOST_SIZES).round().astype(int)
    return [questions[place] for place in places]
