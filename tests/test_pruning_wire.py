"""What is said of pruning fits its envelopes, means what it says, and is refused where it can't."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from esper.errors import RefusedError, SettingError
from esper.kasmina.pruning.messages import MOST_VALUES, bits_of, mask_of
from esper.kasmina.pruning.plan import plan
from esper.kasmina.pruning.pruner import Pruning
from esper.leyline import commands, contracts as pb
from esper.leyline.envelope import BODY_CAP_BYTES, COMMAND_CAP_BYTES
from esper.leyline.validate.messages import rule_of
from tests.pruning_kit import lift, mask, response
from tests.rounds import heartbeat

Mask = pb.PruningMask
CHANNEL = pb.PruningMaskType.PRUNING_MASK_CHANNEL


def measured(**values: list[float]) -> pb.StructuralPruningRequest:
    """Importance of layers a and b, told in one part."""
    each = [
        pb.ChannelImportance(parameter=name, mask_type=CHANNEL, gradient_norm=row, taylor=row, fisher=row)
        for name, row in values.items()
    ]
    return pb.StructuralPruningRequest(request_id="r", importance=each, num_parts=1)


def pruned(answer: pb.StructuralPruningResponse) -> dict[str, list[int]]:
    return {each.parameter: (~mask_of(each)).nonzero().flatten().tolist() for each in answer.pruning_masks}


def test_bits_are_least_significant_first() -> None:
    kept = torch.tensor([1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1], dtype=torch.bool)

    assert bits_of(kept) == bytes([0b0000_1101, 0b0000_0110])
    assert torch.equal(mask_of(Mask(kept=bits_of(kept), num_channels=11)), kept)


def test_the_least_important_of_each_layer_are_planned_to_go() -> None:
    answer = plan([measured(a=[5.0, 1.0, 4.0, 2.0, 3.0], b=[0.5, 0.1])], 0.4)

    assert pruned(answer) == {"a": [1, 3]}
    assert answer.validation_passed
    rule_of(pb.AdaptationCommand)(commands.pruning_masks(answer))


def test_a_layer_without_a_finite_measurement_or_that_is_not_asked_for_is_left_alone() -> None:
    request = measured(a=[math.nan] * 4, b=[1.0, 2.0, 3.0, 4.0], c=[1.0, 2.0, 3.0, 4.0])

    assert pruned(plan([request], 0.5, only=["a", "b"])) == {"b": [0, 1]}


@pytest.mark.parametrize(("field", "value"), [("ratio", 1.0), ("ratio", -0.1), ("criterion", "magnitude")])
def test_a_plan_that_cannot_be_meant_is_refused(field: str, value: float | str) -> None:
    arguments: dict[str, object] = {"ratio": 0.5, "criterion": "taylor", field: value}

    with pytest.raises(SettingError, match=field):
        plan([], **arguments)  # type: ignore[arg-type]


def test_importance_of_a_large_model_comes_in_parts_that_fit_a_heartbeat() -> None:
    model = nn.ModuleList(nn.Linear(1, 5_000) for _ in range(8))

    parts = Pruning(model).export("r", "c", 3)

    assert [(part.part, part.num_parts) for part in parts] == [(0, 3), (1, 3), (2, 3)]
    assert [each.parameter for part in parts for each in part.importance] == [f"{at}.weight" for at in range(8)]
    for part in parts:
        beat = heartbeat()
        beat.pruning.CopyFrom(part)
        rule_of(pb.Heartbeat)(beat)
        assert beat.ByteSize() < 12 * MOST_VALUES + 8_000 < BODY_CAP_BYTES


def test_masks_of_a_large_model_fit_one_command() -> None:
    command = commands.pruning_masks(response(*(mask(f"layers.{at}.mlp.weight", [0], 3_072) for at in range(96))))

    rule_of(pb.AdaptationCommand)(command)
    assert command.ByteSize() < COMMAND_CAP_BYTES


REFUSED: list[tuple[pb.StructuralPruningResponse, str]] = [
    (response(Mask(parameter="a", mask_type=CHANNEL, kept=b"\xff", num_channels=9)), "bytes of the mask of 'a'"),
    (response(Mask(parameter="a", mask_type=CHANNEL, kept=b"\x10", num_channels=4)), "no bit set beyond num_channels"),
    (response(Mask(parameter="a", mask_type=CHANNEL)), "num_channels is 0"),
    (response(Mask(parameter="", mask_type=CHANNEL, kept=b"\x01", num_channels=1)), "parameter is ''"),
    (response(Mask(parameter="a", kept=b"\x01", num_channels=1)), "mask_type is 0"),
    (pb.StructuralPruningResponse(), "request_id is ''"),
    (pb.StructuralPruningResponse(request_id="r", processing_time_ms=math.nan), "processing_time_ms is nan"),
]


@pytest.mark.parametrize(("body", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_masks_that_contradict_themselves_are_refused_before_any_judge(
    body: pb.StructuralPruningResponse, said: str
) -> None:
    with pytest.raises(RefusedError, match=said):
        rule_of(pb.AdaptationCommand)(commands.pruning_masks(body))


def test_masks_beside_a_wish_to_lift_them_are_refused() -> None:
    both = lift()
    both.pruning_masks.append(mask("a", [0], 4))

    with pytest.raises(RefusedError, match="none where rollback_required"):
        rule_of(pb.AdaptationCommand)(commands.pruning_masks(both))


def test_importance_that_contradicts_itself_is_refused() -> None:
    uneven, misplaced = heartbeat(), heartbeat()
    uneven.pruning.CopyFrom(measured(a=[1.0, 2.0]))
    uneven.pruning.phase = misplaced.pruning.phase = pb.PruningPhase.PRUNING_PHASE_ACTIVE
    misplaced.pruning.MergeFrom(measured(a=[1.0, 2.0]))
    uneven.pruning.importance[0].fisher.append(3.0)
    misplaced.pruning.part = 1

    for beat, said in ((uneven, "importance of 'a'"), (misplaced, "part is 1; expected below num_parts 1")):
        with pytest.raises(RefusedError, match=said):
            rule_of(pb.Heartbeat)(beat)
