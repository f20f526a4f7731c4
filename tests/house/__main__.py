"""Count files, lines and imports, or follow a command through the packages."""

import sys

from tests.house import main

main(sys.argv[1:])
