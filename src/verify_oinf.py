"""Check and describe ``.oinf`` files: ``python verify_oinf.py FILE``, kept thin over ``openinfer.oinf.verify``."""

import sys

from openinfer.oinf.verify import main, verify_oinf

__all__ = ["main", "verify_oinf"]

if __name__ == "__main__":
    sys.exit(main())
