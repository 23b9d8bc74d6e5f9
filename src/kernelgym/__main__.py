"""``python -m kernelgym``: the same as the `kernelgym` script."""

import sys

from kernelgym.cli import main

if __name__ == "__main__":
    sys.exit(main())
