"""Compare the figures of small questions with those that are recorded."""

import sys

from tests.figures import main

sys.exit(main())
