"""What a life ends with where something is not as it must be."""

from __future__ import annotations


class Wrong(Exception):
    """No error that a host, a blueprint or torch raises."""


def require(holds: object, what: str) -> None:
    if not holds:
        raise Wrong(what)
