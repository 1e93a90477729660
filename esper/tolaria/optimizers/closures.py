"""How a hook before `optimizer.step(closure)` comes after the closure, which makes the gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def after_closure(args: tuple[Any, ...], kwargs: dict[str, Any], then: Callable[[], object]) -> Arguments | None:
    """What a step's pre-hook returns so that `then` runs with this step's gradients, whoever makes them.

    `args` are the hook's, the optimizer first. Without a closure the gradients are there: `then` runs at once. With one
    they are those of the last step, or none; `then` runs each time that the optimizer has called it.
    """
    closure = _given(args, kwargs)
    if closure is None:
        then()
        return None

    def prepared() -> object:
        loss = closure()
        then()
        return loss

    return _with(prepared, args, kwargs)


def unless_it_raises(args: tuple[Any, ...], kwargs: dict[str, Any], then: Callable[[], object]) -> Arguments | None:
    """What a step's pre-hook returns so that `then` runs where its closure raises, as no post-hook does then."""
    closure = _given(args, kwargs)
    if closure is None:
        return None

    def watched() -> object:
        try:
            return closure()
        except BaseException:
            then()
            raise

    return _with(watched, args, kwargs)


def _given(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], object] | None:
    closure: Callable[[], object] | None = kwargs.get("closure", args[1] if len(args) > 1 else None)
    return closure


def _with(closure: Callable[[], object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """In its place: an optimizer's own step may name it otherwise, or take more behind it."""
    if "closure" in kwargs:
        return args, {**kwargs, "closure": closure}
    return (args[0], closure, *args[2:]), kwargs
