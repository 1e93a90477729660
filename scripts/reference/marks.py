"""What stands above the examples of a command in docs/cli.md that tests/long/test_docs_commands.py does not type."""

from __future__ import annotations

from typing import Final

ENDLESS: Final = "run by: tests/system/test_docs_endless.py"
KEPT: Final = "run by: tests/system/test_docs_kept.py"
MARKS: Final = {
    "demo": "run by: tests/system/test_demo.py",
    "up": KEPT,
    "ps": KEPT,
    "restart": KEPT,
    "down": KEPT,
    "verify": KEPT,
    "replay": KEPT,
    "diff": KEPT,
    "export prometheus": ENDLESS,
    "top": ENDLESS,
    "web": ENDLESS,
    "redis": ENDLESS,
    "bench run": "run by: tests/system/test_docs_bench.py",
    "bench soak": ENDLESS,
    "bench worker": ENDLESS,
}
"""By the words after `esper`: the file of tests that types all examples of the command."""
