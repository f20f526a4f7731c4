"""Try mutants: small faults that tests should find."""

import sys

from tests.mutants import main

sys.exit(main())
