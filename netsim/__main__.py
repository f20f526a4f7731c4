"""`python -m netsim` is the command `netsim`."""

from netsim.cli import main

if __name__ == "__main__":
    main()
