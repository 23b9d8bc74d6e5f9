"""``python -m kernelgym_train``: the same as the `kernelgym-train` script."""

import sys

from kernelgym_train.cli import main

if __name__ == "__main__":
    sys.exit(main())
