"""A command as a browser sends it: an operation of the controller by name, its arguments checked by its signature."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from esper.client import Controller, Receipt
from esper.errors import SettingError, near

OPERATIONS = (
    *("germinate", "start_training", "start_grafting", "set_alpha_target", "stabilize", "evaluate", "fossilize"),
    *("cull", "cancel", "reset", "terminate", "pause", "resume", "circuit_breaker", "adjust_optimizer"),
    *("create_seed_optimizer", "grant_steps", "reset_optimizer_state", "initialize_host", "rollback", "emergency"),
)
"""In the order in which a page offers them. Masks and teachers are no matter of a form."""
_KINDS = {str: "text", float: "number", int: "integer"}


async def publish(controller: Controller, said: object) -> Receipt:
    """Of `{"operation": "cull", "arguments": {"seed": "s0"}}`. SettingError where that is no command."""
    if not isinstance(said, Mapping) or not isinstance(said.get("arguments", {}), Mapping):
        raise SettingError("command", said, 'an object such as {"operation": "cull", "arguments": {"seed": "s0"}}')
    operation = said.get("operation")
    if operation not in OPERATIONS:
        raise SettingError("operation", operation, f"one of {', '.join(OPERATIONS)}{near(str(operation), OPERATIONS)}")
    given = dict(said.get("arguments", {}))
    checked = {name: _checked(name, kind, given.pop(name)) for name, kind in _named(operation) if name in given}
    if "self" in given or (given and not _takes_numbers(operation)):
        raise SettingError("arguments", sorted(given), f"only {', '.join(name for name, _ in _named(operation))}")
    numbers = {name: _checked(name, float, value) for name, value in given.items()}
    missing = [name for name in _required(operation) if name not in checked]
    if missing:
        raise SettingError("arguments", sorted(checked), f"{', '.join(missing)} too")
    receipt: Receipt = await getattr(controller, operation)(**checked, **numbers)
    return receipt


def described() -> list[dict[str, Any]]:
    """What a form needs: each operation, what it does, its arguments, and whether it takes numbers by name."""
    return [
        {
            "name": name,
            "does": (getattr(Controller, name).__doc__ or "").strip(),
            "arguments": [
                {"name": each, "kind": _KINDS.get(kind, "texts"), "required": each in _required(name)}
                for each, kind in _named(name)
                if kind in (*_KINDS, str | None) or kind == Sequence[str]
            ],
            "numbers": _takes_numbers(name),
        }
        for name in OPERATIONS
    ]


@cache
def _parameters(operation: str) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(getattr(Controller, operation), eval_str=True).parameters.values())[1:]


def _named(operation: str) -> list[tuple[str, Any]]:
    return [(each.name, each.annotation) for each in _parameters(operation) if each.kind is not each.VAR_KEYWORD]


def _required(operation: str) -> list[str]:
    return [
        each.name for each in _parameters(operation) if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    ]


def _takes_numbers(operation: str) -> bool:
    return any(each.kind is each.VAR_KEYWORD for each in _parameters(operation))


def _checked(name: str, kind: Any, value: object) -> Any:
    try:
        return TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        raise SettingError(name, value, error.errors()[0]["msg"]) from error
