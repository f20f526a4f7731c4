"""Read damaged files, and list those that end in a bug."""

from tests.fuzz import main

main()
