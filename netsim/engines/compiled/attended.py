"""Machine code in a thread of its own, while this one hears the user and tells how far it is.

Python can act on Ctrl-C only between calls, and one call may simulate for minutes.
"""

from collections.abc import Callable
from threading import Thread

LOOK = 0.1  # seconds between two looks at the outside world


def attended(call: Callable[[], int], stop: Callable[[], None], look: Callable[[], None]) -> int:
    """The answer of a call. `look()` is called now and then; what interrupts this thread has the
    call told to `stop()`, which it must do soon.
    """
    answers: list[int] = []
    thread = Thread(target=lambda: answers.append(call()))
    thread.start()
    try:
        thread.join(LOOK)
        while thread.is_alive():
            look()
            thread.join(LOOK)
    except BaseException:
        stop()
        thread.join()
        raise
    return answers[0]
