"""`python -m dflash_cli`, and the `dflash` script."""

from __future__ import annotations

import sys

try:
    from dflash_cli.cli import main
except KeyboardInterrupt:
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
