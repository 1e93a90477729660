"""What a command talks to a live run with; imported once it does, as its --help needs none of it."""

from __future__ import annotations

from esper.runtime import gc_policy

with gc_policy.loading("opentelemetry"):
    from esper.bus import connect as connect
    from esper.client import Controller as Controller
    from esper.runtime import access as access
