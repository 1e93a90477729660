"""Files of rows as scripts: `python bench/NAME.py --json` is `esper bench run --full --json --from bench/NAME.py`."""

from __future__ import annotations

import sys

from esper.cli.main import app

EFFORTS = {"--quick", "--gate", "--full"}


def main(file: str, family: str) -> None:
    """With the options of `esper bench run`, and its status; at full effort, where no other one is asked for."""
    given = sys.argv[1:]
    effort = [] if EFFORTS & {*given} else ["--full"]
    app(["bench", "run", family, "--from", file, *effort, *given])
