"""`python -m pgshoal` is the `pgshoal` command."""

import sys

from pgshoal.cli import main

if __name__ == "__main__":
    sys.exit(main())
