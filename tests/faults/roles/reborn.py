"""What `esper replay` starts as the trainer: it has a nursery fork one that knows what this process was told."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.faults.nursery import Born

ORDER = "REBORN"
"""In the environment, as JSON: the nursery's socket, the module, its arguments."""


def main() -> None:
    order = json.loads(os.environ[ORDER])
    said = f"/proc/{os.getpid()}/fd/1"
    born = Born(Path(order.pop("nursery")), {**order, "environment": dict(os.environ), "log": said})
    code = born.wait()
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
