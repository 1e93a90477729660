"""docs/settings.md: what each process and attach() may be told, from the models that check it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from typing import Any

from esper.kasmina.config import ELSEWHERE, FIXED, KasminaConfig
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.runtime.beside.options import RuntimeSettings
from esper.runtime.coordinator.assembly import CoordinatorSettings
from esper.runtime.settings import PREFIX, Settings
from esper.session.options import SessionOptions
from esper.workers.exporter import ExporterSettings
from esper.workers.global_ import GlobalSettings
from esper.workers.trainer import TrainerSettings
from scripts.reference.tables import code, table

HEAD = """# Settings

Made from the code by `make docs`. Each is checked where it enters: a bad value is one line that names
it, the value met and what it should be, and exit status 2.

"""
INNER = "link_"
"""Begins what attach() tells the runtime that it starts, and nobody else does."""
PROCESSES: dict[str, type[Settings]] = {
    "Every process": Settings,
    "Coordinator (`esper.workers.coordinator`)": CoordinatorSettings,
    "Global aggregator (`esper.workers.global_`)": GlobalSettings,
    "Runtime, started by attach() (`esper.workers.runtime`)": RuntimeSettings,
    "Exporter (`esper.workers.exporter`)": ExporterSettings,
    "The demo's trainer (`esper.workers.trainer`)": TrainerSettings,
}
CLASSES: dict[str, Any] = {
    "attach()": SessionOptions,
    "Seeds and gates: `attach(settings=KasminaConfig(...))`": KasminaConfig,
    "Pruning: `attach(pruning=KasminaCheckpointPruningConfig(...))`": KasminaCheckpointPruningConfig,
}


def page() -> str:
    """The whole page."""
    parts = [f"## {title}\n\n{variables(model)}" for title, model in PROCESSES.items()]
    return HEAD + "".join(parts + [f"## {title}\n\n{arguments(each)}" for title, each in CLASSES.items()])


def variables(model: type[Settings]) -> str:
    """Environment variables of one process, without those of every process."""
    said = remarks(model)
    named = {name: field for name, field in model.model_fields.items() if name in said and not name.startswith(INNER)}
    rows = [
        (code(PREFIX + name.upper()), value(field.default), bounds(field.metadata), said[name])
        for name, field in named.items()
    ]
    return table(("variable", "default", "range", ""), rows) or "None of its own.\n\n"


def bounds(metadata: list[Any]) -> str:
    """Limits of a number, where it has some."""
    limits = {
        name: getattr(each, name) for each in metadata for name in ("ge", "gt", "le", "lt") if hasattr(each, name)
    }
    words = {"ge": "from {}", "gt": "above {}", "le": "to {}", "lt": "below {}"}
    return " ".join(words[name].format(limit) for name, limit in limits.items() if limit is not None)


def arguments(each: Any) -> str:
    """Fields of a frozen class."""
    said = remarks(each)
    return table(
        ("field", "default", ""),
        [
            (code(field.name), value(field.default), said.get(field.name) or reason(each, field.name))
            for field in dataclasses.fields(each)
        ],
    )


def reason(owner: type, name: str) -> str:
    """Why a field of the executor's takes its default alone; empty for any other."""
    if owner is not KasminaConfig:
        return ""
    if name in ELSEWHERE:
        return f"this value alone here: {ELSEWHERE[name]}"
    return "this value alone: it is fixed" if name in FIXED else ""


def value(default: object) -> str:
    """As it would be typed; nothing where there is none, or where it is made anew each time."""
    missing = default is dataclasses.MISSING or default is None or type(default).__name__ == "PydanticUndefinedType"
    return "" if missing or default in ("", ()) else code(str(default))


def remarks(owner: type) -> dict[str, str]:
    """What stands beside or below each field of a class in its source."""
    source = textwrap.dedent(inspect.getsource(owner))
    lines, body = source.splitlines(), ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    said: dict[str, str] = {}
    for at, node in enumerate(body.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            beside = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")[2]
            below = body.body[at + 1] if at + 1 < len(body.body) else None
            said[node.target.id] = beside or docstring(below)
    return said


def docstring(node: ast.stmt | None) -> str:
    """The text of a statement that is one."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return " ".join(node.value.value.split())
    return ""
