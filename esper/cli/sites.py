"""`esper sites`: where seeds can join a model, seen in one forward of it."""

from __future__ import annotations

import json as notation
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from esper.cli.options import AsObject
from esper.cli.output.cells import cells
from esper.errors import SettingError
from esper.runtime import gc_policy
from esper.view.wording import counted

if TYPE_CHECKING:
    from esper.kasmina.slots.survey import SiteView

EXPECTED = "package.module:callable or path/to/file.py:callable, a callable that returns a model, or (model, inputs)"
NARROWEST = 120  # columns; a pipe has none of its own
LONGEST_KIND = 16


def sites(
    factory: Annotated[str, typer.Argument(help="package.module:callable, or path/to/file.py:callable.")],
    input: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="SHAPE[:DTYPE]", help="Of an example input, as 2,3,32,32 or 2,16:int64."),
    ] = None,
    match: Annotated[str, typer.Option(metavar="PATTERN", help="Only sites of this name, as 'blocks.*.mlp'.")] = "*",
    json: AsObject = False,
) -> None:
    """List the sites of a model: shapes, parameters, and which blueprints fit.

    The callable returns the model, or (model, inputs), inputs being one tensor, a tuple, or a mapping of keyword
    arguments. Without inputs there is no forward, and no shapes.
    """
    place, name = parts(factory)
    with gc_policy.loading():  # torch, once there is something to look at
        from esper.kasmina.slots.survey import as_inputs, example, survey
        from esper.kernels.installed import installed_blueprints
    with redirect_stdout(sys.stderr):  # what the model's own code prints is no part of the answer
        model, inputs = built(place, name, factory)
        if input:
            inputs = tuple(example(text) for text in input)
        views = survey(model, None if inputs is None else as_inputs(inputs), installed_blueprints())
    chosen = [view for view in views if fnmatchcase(view.site, match)]
    if not chosen:
        raise SettingError("--match", match, f"a pattern that some of the {len(views)} sites fit")
    if json:
        print(notation.dumps({"model": type(model).__name__, "sites": [asdict(view) for view in chosen]}))
    else:
        show(type(model).__name__, chosen, seen=inputs is not None)


def parts(factory: str) -> tuple[str, str]:
    """Module or file, and the name in it. SettingError: it is none, or nothing is there."""
    place, _, name = factory.rpartition(":")
    if not place or not name:
        raise SettingError("FACTORY", factory, EXPECTED)
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise SettingError("FACTORY", factory, f"{EXPECTED}; {place} is no file")
        return place, name
    sys.path.insert(0, "")  # as `python -m` has it
    why = f"No module named {place!r}"
    try:
        with gc_policy.loading():  # the packages that it is in
            if find_spec(place) is not None:
                return place, name
    except (ImportError, ValueError) as error:
        why = str(error)
    raise SettingError("FACTORY", factory, f"{EXPECTED}; importing it failed: {why}")


def built(place: str, name: str, factory: str) -> tuple[Any, Any]:
    """The model and its example inputs, None where the factory gives none. Runs the factory's code."""
    make = getattr(loaded(place, factory), name, None)
    if not callable(make):
        raise SettingError("FACTORY", factory, f"{EXPECTED}; {place} has no callable {name!r}")
    made = make()
    model, inputs = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if not callable(getattr(model, "named_modules", None)):
        raise SettingError("FACTORY", factory, f"{EXPECTED}; it returned a {type(model).__name__}")
    return model, inputs


def loaded(place: str, factory: str) -> ModuleType:
    """A module by its name, found as `python -m` would, or by its file."""
    try:
        if not place.endswith(".py"):
            return import_module(place)
        path = Path(place)
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None  # as it ends in .py
        module = module_from_spec(spec)
        sys.modules[path.stem] = module  # dataclasses look their module up there
        sys.path.insert(0, str(path.parent))
        spec.loader.exec_module(module)
    except ImportError as error:
        raise SettingError("FACTORY", factory, f"{EXPECTED}; importing it failed: {error}") from error
    return module


def show(model: str, views: Sequence[SiteView], *, seen: bool) -> None:
    """A table for a person; what no seed can join is dim."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, NARROWEST)
    [title] = cells(f"{model}: {counted(len(views), 'site')}")
    table = Table(title=title, box=None, pad_edge=False, title_justify="left")
    table.add_column("site", no_wrap=True)
    for heading in ("type", "input", "output"):
        table.add_column(heading, overflow="fold")
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("blueprints", overflow="fold")
    for view in views:
        dim = "dim" if seen and not view.fit else ""
        fits = fitting_cell(view, seen=seen)
        told = (view.site, view.kind, shape(view.input), made(view), f"{view.num_parameters:,}", fits)
        table.add_row(*cells(*told), style=dim)
    console.print(table)
    if not seen:
        console.print("No example inputs: shapes and fitting blueprints need --input, or a factory that returns them.")


def fitting_cell(view: SiteView, *, seen: bool) -> str:
    """The blueprints that fit, or why none does."""
    if view.same_as:
        return f"the same module as {view.same_as}"
    if not seen:
        return ""
    if not view.calls:
        return "never called"
    if not view.output:
        return "no activations in its output"
    return " ".join(view.blueprints) or "none"


def shape(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def made(view: SiteView) -> str:
    """The output's shape, and what it is in."""
    kind = view.output_kind if len(view.output_kind) <= LONGEST_KIND else f"{view.output_kind[: LONGEST_KIND - 1]}…"
    inside = f" in {kind}" if kind not in ("", "Tensor") and view.output else ""
    return f"{shape(view.output)}{inside}" + (f" ({view.calls} calls)" if view.calls > 1 else "")
