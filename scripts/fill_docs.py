"""Copies what pages quote into them: the controller script into README, tables out of the code into docs/."""

from __future__ import annotations

import re
from pathlib import Path

from esper.bus.names import STREAMS
from esper.kernels.blueprints import BLUEPRINTS
from esper.kernels.schema import BlueprintRange
from esper.runtime.operations.catalogue import METRICS

ROOT = Path(__file__).resolve().parent.parent
BLUEPRINTS_HEAD = "| blueprint | what it adds | parameters: default, range |\n|---|---|---|\n"
METRICS_HEAD = "| metric | kind | labels | shown by | what it says |\n|---|---|---|---|---|\n"
HEAD = "| stream | regional | writers | readers | group | trimming |\n|---|---|---|---|---|---|\n"


def fill(page: str, start: str, content: str, end: str) -> None:
    """Put `content` between the line that begins with `start` and the next one that is `end`."""
    path = ROOT / page
    block = re.compile(rf"(^{re.escape(start)}[^\n]*\n).*?(^{re.escape(end)}$)", re.DOTALL | re.MULTILINE)
    text, num = block.subn(lambda found: found[1] + content + found[2], path.read_text(), count=1)
    if num != 1:
        raise SystemExit(f"{page} has no block from {start!r} to {end!r}")
    path.write_text(text)


def stream_rows() -> str:
    cells = (
        (f"`:{one.name}`", "yes" if one.regional else "", one.writers, one.readers, one.group, one.trimming)
        for one in STREAMS
    )
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def blueprint_rows() -> str:
    cells = (
        (f"`{one.blueprint_id}`", one.summary, "; ".join(map(range_of, one.parameters))) for one in BLUEPRINTS.values()
    )
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def metric_rows() -> str:
    cells = ((f"`{one.name}`", one.kind, ", ".join(one.labels), one.roles, one.text) for one in METRICS)
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def range_of(row: BlueprintRange) -> str:
    kind = "" if row.integer else ", any number"
    return f"`{row.name}` {row.default:g}, {row.minimum:g} to {row.maximum:g}{kind}: {row.meaning}"


if __name__ == "__main__":
    fill("README.md", "```python", (ROOT / "examples" / "grow_digits.py").read_text(), "```")
    fill("docs/internals/bus.md", "<!-- table: esper.bus.names.STREAMS", HEAD + stream_rows(), "<!-- end -->")
    fill("docs/blueprints.md", "<!-- table: esper.kernels", BLUEPRINTS_HEAD + blueprint_rows(), "<!-- end -->")
    fill(
        "docs/health.md", "<!-- table: esper.runtime.operations.catalogue", METRICS_HEAD + metric_rows(), "<!-- end -->"
    )
