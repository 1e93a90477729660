"""A data-parallel trainer of the digits, steered: the process that `esper demo` and compose start."""

from __future__ import annotations

import sys

from esper.errors import EsperError
from esper.examples.train_digits import main

if __name__ == "__main__":
    try:
        main()
    except EsperError as error:
        print(f"trainer: {error}", file=sys.stderr)
        raise SystemExit(1) from error
