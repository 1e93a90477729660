"""Blueprints of installed distributions, found by their entry points; nothing is ever registered by a message."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from esper.errors import SettingError
from esper.kernels.blueprints import BLUEPRINTS, Blueprint

GROUP = "esper.blueprints"
RESERVED = "auto"  # the parameter of a command that says who advances a seed

# What importing somebody's module raises where it is broken; anything else is not about the blueprint.
BROKEN = (
    ImportError,
    SyntaxError,
    AttributeError,
    NameError,
    TypeError,
    ValueError,
    LookupError,
    RuntimeError,
    OSError,
)


def installed_blueprints() -> dict[str, Blueprint]:
    """Ours, and every Blueprint that an entry point of the group `esper.blueprints` on sys.path names.

    Imports what it finds. Raises SettingError, with the distribution's name, where one is broken, is no Blueprint, has
    an id that is taken or a parameter whose name is reserved. The order is that of distributions and names.
    """
    blueprints, origins = dict(BLUEPRINTS), dict.fromkeys(BLUEPRINTS, "esper itself")
    for entry in sorted(entry_points(group=GROUP), key=lambda each: (_origin(each), each.name)):
        new, origin = _loaded(entry), _origin(entry)
        register(blueprints, new, origin, taken_by=origins.get(new.blueprint_id, ""))
        origins[new.blueprint_id] = origin
    return blueprints


def register(blueprints: dict[str, Blueprint], new: Blueprint, origin: str, *, taken_by: str = "") -> None:
    """Add one, from the distribution `origin`; SettingError where its id is taken, or a parameter's name reserved."""
    if new.blueprint_id in blueprints:
        expected = f"an id that is free; it is taken by {taken_by or 'another'}"
        raise SettingError(f"blueprint of {origin}", new.blueprint_id, expected)
    if any(row.name == RESERVED for row in new.parameters):
        raise SettingError(f"parameter of blueprint {new.blueprint_id!r} of {origin}", RESERVED, "a name not reserved")
    blueprints[new.blueprint_id] = new


def _loaded(entry: EntryPoint) -> Blueprint:
    what = f"entry point {entry.name!r} of {_origin(entry)}"
    try:
        found = entry.load()
    except BROKEN as error:
        expected = f"a Blueprint that can be imported ({type(error).__name__}: {error})"
        raise SettingError(what, entry.value, expected) from error
    if not isinstance(found, Blueprint):
        raise SettingError(what, entry.value, f"a Blueprint; it is a {type(found).__name__}")
    return found


def _origin(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown distribution"
