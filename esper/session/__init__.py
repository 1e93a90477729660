"""The training loop's side of a run: attach() and what it returns."""

from __future__ import annotations

from esper.session.attach import attach
from esper.session.options import SessionOptions
from esper.session.session import Session, Step

__all__ = ["Session", "SessionOptions", "Step", "attach"]
