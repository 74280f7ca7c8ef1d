"""``python -m gobrrr``."""

import sys

from gobrrr.cli import main

if __name__ == "__main__":
    sys.exit(main())
