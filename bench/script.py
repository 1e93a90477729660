"""Files of rows as scripts: `python bench/NAME.py --json` is `esper bench run --full --json --from bench/NAME.py`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from esper.cli.main import app

EFFORTS = {"--quick", "--gate", "--full"}


def main(rows: Sequence[str], *files: str) -> None:
    """With the options of `esper bench run`, and its status; at full effort, where no other one is asked for.

    `rows`: names or families, of the suite and of `files`, that are measured where none is given first, in `python
    bench/bus.py bus-latency`.
    """
    given = sys.argv[1:]
    named = given and not given[0].startswith("-")
    origin = [word for file in files for word in ("--from", file)]
    effort = [] if EFFORTS & {*given} else ["--full"]
    app(["bench", "run", *([] if named else rows), *origin, *effort, *given])
