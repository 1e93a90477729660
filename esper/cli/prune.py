"""`esper publish prune`: masks from what the run says its channels are worth, or from a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from google.protobuf import json_format

from esper.client import Controller, Receipt
from esper.errors import SettingError, UnansweredError
from esper.kasmina.pruning.plan import plan
from esper.leyline import contracts as pb
from esper.leyline.commands import new_command_id

IMPORTANCE_S = 60.0


async def prune(
    controller: Controller,
    *,
    ratio: float = 0.0,
    criterion: str = "taylor",
    only: Sequence[str] = (),
    masks: Path | None = None,
    lift: str = "",
) -> Receipt:
    """Hold channels and heads at zero: the least important share `--ratio` of each layer, or what a file of masks says.

    `--only` names the weights that may be pruned, `--criterion` is taylor, fisher or gradient_norm. `--masks` is the
    JSON form of a StructuralPruningResponse. `--lift REASON` takes the last masks back instead.
    """
    if sum((ratio != 0, masks is not None, lift != "")) != 1:
        raise SettingError("prune", f"--ratio {ratio:g}", "one of --ratio, --masks and --lift")
    if lift:
        undo = pb.StructuralPruningResponse(request_id=new_command_id(), rollback_required=True, rollback_reason=lift)
        return await controller.prune(undo)
    return await controller.prune(read(masks) if masks else await planned(controller, ratio, criterion, only))


async def planned(
    controller: Controller, ratio: float, criterion: str, only: Sequence[str]
) -> pb.StructuralPruningResponse:
    """Ask the run, and plan. SettingError where that prunes nothing."""
    plan((), ratio, criterion=criterion)  # refuses what can't be meant before the run is asked
    try:
        parts = await controller.importance(IMPORTANCE_S)
    except TimeoutError:
        raise UnansweredError("importance", IMPORTANCE_S, ["rank 0"]) from None
    response = plan(parts, ratio, criterion=criterion, only=only)
    if not response.pruning_masks:
        raise SettingError("--ratio", f"{ratio:g}", "a share that takes a channel of some layer asked for and measured")
    return response


def read(path: Path) -> pb.StructuralPruningResponse:
    """The masks in a file."""
    try:
        return json_format.Parse(path.read_bytes(), pb.StructuralPruningResponse())
    except OSError as error:
        raise SettingError("--masks", str(path), f"a file that can be read: {error.strerror}") from None
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise SettingError("--masks", str(path), f"the JSON form of a StructuralPruningResponse: {error}") from None
