"""A LoRA into a layer of a GPT-2 and out again: by ours, by PEFT, and by the least that torch allows."""

from __future__ import annotations

from esper.bench.arm import Ready
from esper.bench.work.seeds.adapters import by_hook, by_peft, in_and_out
from esper.bench.work.seeds.gpt2 import SITES, Host, an_executor
from esper.bench.work.seeds.grafts import Sites
from esper.bench.work.teachers.modes import listed


def garden() -> Sites:
    """Four sites of the model."""
    host = Host()
    return Sites(an_executor(host), host.model, host.inputs, lambda: listed(host.logits()))


def germinated_and_culled() -> Ready:
    sites = garden()
    return in_and_out(sites, sites.next)


def added_and_deleted() -> Ready:
    return by_peft(garden(), SITES[0])


def hooked() -> Ready:
    return by_hook(garden(), SITES[0])
