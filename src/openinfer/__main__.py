"""``python -m openinfer``: the command line."""

import sys

from openinfer.cli import main

if __name__ == "__main__":
    sys.exit(main())
