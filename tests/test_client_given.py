"""What a controller is given is held against what a command can carry, before anything is sent."""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from esper.bus import names
from esper.client import Controller
from esper.errors import SettingError
from esper.leyline import contracts as pb
from tests.scripted import ScriptedRun

COUNTLESS = 10**5000
NO_NUMBER: Sequence[Any] = (
    *(np.array([1.0, 2.0]), torch.ones(2), torch.ones((), device="meta"), "4", b"4", [4], {}, object()),
    *(math.nan, np.float64("nan"), Decimal("sNaN"), 2j, None, 10**400, COUNTLESS, -math.inf),
)
NO_COUNT: Sequence[Any] = (*NO_NUMBER, math.inf, 2**63, 2**70, -1, 1.5, torch.tensor(0.5))
NO_TEXT: Sequence[Any] = (
    *(3, math.nan, b"s0", np.array(["s0", "s1"]), torch.ones(2), "s\ud800", ["s0"], {}, object(), COUNTLESS),
)
NO_TEXTS: Sequence[Any] = ("lr", b"lr", 3, ["lr", 3], [b"lr"], ["\ud800"], None, torch.tensor(1.0))
NO_MESSAGE: Sequence[Any] = ("s0", b"", 3, None, math.nan, np.array([1.0]), pb.SeedCommand(seed_id="s0"))

WRONG: Mapping[object, Sequence[Any]] = {
    float: (*NO_NUMBER, math.inf),
    int: NO_COUNT,
    str: (*NO_TEXT, None),
    str | None: NO_TEXT,
    Path | str | None: NO_TEXT,
    Sequence[str]: NO_TEXTS,
}
"""By what a parameter is declared as."""
OTHERWISE: Mapping[str, Sequence[Any]] = {
    "until.timeout_s": (*NO_NUMBER, -1),
    "epochs.timeout_s": (*NO_NUMBER, -1),
    "reaches.timeout_s": (*NO_NUMBER, -1),
    "importance.timeout_s": (*NO_NUMBER, -1),
    "connect.durability": (*NO_TEXT, "sloppy"),
    "pause.seed": (*NO_TEXT, ""),
    "resume.seed": (*NO_TEXT, ""),
    "publish.command": NO_MESSAGE,
    "prune.masks": NO_MESSAGE,
    "reset_optimizer_state.generation": (*NO_COUNT, 2**32),
    "persist.timeout_s": (*NO_NUMBER, -1),
    "persist.epoch_timeout_s": (*NO_NUMBER, -1),
    "persist.attempts": (*NO_COUNT, 0),
    "persist.held_by": (*NO_TEXT, "gate_faild", None),
}
"""What is wrong there alone."""
PASSED_ON = ("persist.seed", "persist.arguments")
NEEDED: Mapping[str, Any] = {
    **{
        "seed": "s0",
        "optimizer_id": "s0",
        "site": "head",
        "blueprint": "lora",
        "alpha": 0.5,
        "lr": 0.1,
        "digest": "ab" * 32,
    },
    **{"masks": pb.StructuralPruningResponse(), "command": pb.AdaptationCommand(), "timeout_s": 5.0, "count": 1},
    **{"stage": "TRAINING", "tier": "global", "predicate": bool, "operation": Controller.cull},
}


def parameters() -> list[str]:
    """Every parameter of every public method, as `method.parameter`, but for what is called or passed on."""
    methods = [name for name in vars(Controller) if not name.startswith("_")]
    taken = {method: inspect.signature(getattr(Controller, method)).parameters for method in methods}
    found = [f"{method}.{name}" for method in methods for name in taken[method]]
    return [
        each for each in found if not each.endswith((".self", ".operation", ".predicate")) and each not in PASSED_ON
    ]


@pytest.mark.parametrize("parameter", parameters())
async def test_what_can_not_be_meant_is_refused_by_its_name_before_anything_is_sent(
    run: ScriptedRun, controller: Controller, parameter: str
) -> None:
    method, _, name = parameter.partition(".")
    operation = getattr(controller, method)
    declared = inspect.signature(operation, eval_str=True).parameters
    given = {
        each: NEEDED[each] for each in declared if declared[each].default is inspect.Parameter.empty and each in NEEDED
    }
    named = "decay" if declared[name].kind is inspect.Parameter.VAR_KEYWORD else name
    for value in OTHERWISE.get(parameter) or WRONG[declared[name].annotation]:
        with pytest.raises(SettingError) as refused:
            await ended(operation(**given | {named: value}))
        assert f"{named} is " in str(refused.value).lower() and "; expected " in str(refused.value)
        assert len(str(refused.value)) < 1000

    assert not await run.redis.exists(names.key(run.run_id, "commands"), names.key(run.run_id, "optimizer"))


async def ended(asked: Any) -> None:
    """Whatever a method answers: something to wait for, to enter, or to walk."""
    match asked:
        case AbstractAsyncContextManager():
            await asked.__aenter__()
        case AsyncGenerator():
            await anext(asked)
        case Awaitable():
            await asked
