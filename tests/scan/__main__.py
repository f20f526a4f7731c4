"""Look through tables of answers for what is doubtful."""

import sys

from tests.scan import main

sys.exit(main())
