"""``python -m hbtvm`` is the ``hbtvm`` command."""

import sys

from hbtvm.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
