"""Which rows there are: ours, those of installed packages, and those of a file that is named."""

from __future__ import annotations

import importlib
import pkgutil
import runpy
from collections.abc import Iterable, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from esper.bench import rows as own
from esper.bench.row import Row
from esper.errors import SettingError, near

ENTRY_POINTS = "esper.benchmarks"
"""Each entry point names a sequence of rows in installed code."""


def registered(files: Sequence[Path] = ()) -> dict[str, Row]:
    """Rows by name, in the order of their modules. A `file` is run, and gives what its ROWS hold."""
    found: dict[str, Row] = {}
    for row in [*_own(), *_installed(), *(row for file in files for row in _of_file(file))]:
        if row.name in found:
            raise SettingError("the name of a benchmark", row.name, "a name that no other one has")
        found[row.name] = row
    return found


def chosen(names: Sequence[str], rows: dict[str, Row]) -> list[Row]:
    """The rows of these names or families; all, where none is named."""
    families = {row.family for row in rows.values()}
    for name in names:
        if name not in rows and name not in families:
            raise SettingError("the benchmark", name, f"one of `esper bench list`{near(name, [*rows, *families])}")
    return [row for row in rows.values() if not names or row.name in names or row.family in names]


def _own() -> Iterable[Row]:
    for module in pkgutil.iter_modules(own.__path__):
        yield from importlib.import_module(f"{own.__name__}.{module.name}").ROWS


def _installed() -> Iterable[Row]:
    for point in entry_points(group=ENTRY_POINTS):
        yield from point.load()


def _of_file(file: Path) -> Iterable[Row]:
    if not file.is_file():
        raise SettingError("the file of benchmarks", str(file), "a file that exists")
    names = runpy.run_path(str(file))
    if "ROWS" not in names:
        raise SettingError("the file of benchmarks", str(file), "one that sets ROWS to a sequence of rows")
    yield from names["ROWS"]
