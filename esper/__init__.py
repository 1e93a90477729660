"""Steer a PyTorch training run while it runs. Names resolve on first use, so that importing this loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from esper.version import __version__ as __version__

if TYPE_CHECKING:
    from esper.client import Controller as Controller
    from esper.session import Session as Session, attach as attach

_HOMES = {"attach": "esper.session", "Session": "esper.session", "Controller": "esper.client"}

__all__ = ["Controller", "Session", "attach"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'esper' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """What `dir`, completion and help() go by: also names that have not been resolved yet."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
