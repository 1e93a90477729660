"""`esper publish prune`: masks from what the run says its channels are worth, or from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from google.protobuf import json_format

from esper.client import Controller, Receipt
from esper.errors import SettingError, UnansweredError
from esper.kasmina.pruning.plan import plan
from esper.leyline import contracts as pb
from esper.leyline.commands import new_command_id

IMPORTANCE_S = 60.0
NUM_NEAR = 5


async def prune(
    controller: Controller,
    *,
    ratio: float = 0.0,
    criterion: str = "taylor",
    only: Sequence[str] = (),
    leave: Sequence[str] = (),
    masks: Path | None = None,
    lift: str = "",
) -> Receipt:
    """Hold channels and heads at zero: the least important share `--ratio` of each layer, or what a file of masks says.

    `--only` names the weights that may be pruned, `--leave` those that may not, as the last layer's, whose channels are
    the model's outputs. `--criterion` is taylor, fisher or gradient_norm. `--masks` is the JSON form of a
    StructuralPruningResponse. `--lift REASON` takes the last masks back instead.
    """
    if sum((ratio != 0, masks is not None, lift != "")) != 1:
        raise SettingError("prune", f"--ratio {ratio:g}", "one of --ratio, --masks and --lift")
    if lift:
        undo = pb.StructuralPruningResponse(request_id=new_command_id(), rollback_required=True, rollback_reason=lift)
        return await controller.prune(undo)
    return await controller.prune(read(masks) if masks else await planned(controller, ratio, criterion, only, leave))


async def planned(
    controller: Controller, ratio: float, criterion: str, only: Sequence[str], leave: Sequence[str]
) -> pb.StructuralPruningResponse:
    """Ask the run, and plan. SettingError where that prunes nothing."""
    plan((), ratio, criterion=criterion)  # refuses what can't be meant before the run is asked
    try:
        parts = await controller.importance(IMPORTANCE_S)
    except TimeoutError:
        raise UnansweredError("importance", IMPORTANCE_S, ["rank 0"]) from None
    require_measured(parts, {"--only": only, "--leave": leave})
    response = plan(parts, ratio, criterion=criterion, only=only, leave=leave)
    if not response.pruning_masks:
        raise SettingError("--ratio", f"{ratio:g}", "a share that takes a channel of some layer asked for and measured")
    return response


def require_measured(parts: Sequence[pb.StructuralPruningRequest], asked: Mapping[str, Sequence[str]]) -> None:
    """SettingError for a name that is none of what the run measures."""
    known = sorted({each.parameter for part in parts for each in part.importance})
    for option, names in asked.items():
        for name in names:
            if name not in known:
                near = get_close_matches(name, known, NUM_NEAR, 0.0)
                wanted = f"one of {len(known)} weights that the run measures, as {', '.join(near)}"
                raise SettingError(option, name, wanted)


def read(path: Path) -> pb.StructuralPruningResponse:
    """The masks in a file."""
    try:
        return json_format.Parse(path.read_bytes(), pb.StructuralPruningResponse())
    except OSError as error:
        raise SettingError("--masks", str(path), f"a file that can be read: {error.strerror}") from None
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise SettingError("--masks", str(path), f"the JSON form of a StructuralPruningResponse: {error}") from None
