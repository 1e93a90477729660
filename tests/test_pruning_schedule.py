"""How fast masks come into force, and which of them never do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from esper.errors import RefusedError
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.pruner import Pruning
from esper.kasmina.pruning.schedule import Ramp
from esper.kasmina.pruning.units import CHANNEL, HEAD, LAYER, WEIGHT
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import reason_name
from tests.pruning_kit import APPLIED, FAILED, HEADS, WATCHED, Dictated, mask, new_zoo, response

Reason = pb.ReasonCode


def test_the_cubic_ramp_is_the_published_one() -> None:
    """s_t = s_f + (s_i - s_f) * (1 - (t - t_0) / (n * dt))**3, Zhu & Gupta 2017, eq. 1, with s_i = 0."""
    ramp = Ramp(start=100, num_steps=40, every=10)

    shares = [ramp.share(step) for step in (100, 110, 119, 120, 130, 140, 500)]

    published = [1.0 - (1.0 - t / 40) ** 3 for t in (0, 10, 10, 20, 30, 40, 40)]
    assert shares == pytest.approx(published)
    assert [step for step in range(95, 160) if ramp.share(step) != ramp.share(step - 1)] == [110, 120, 130, 140]


def test_one_shot_prunes_all_at_once() -> None:
    assert (Ramp(start=7, num_steps=0).share(7), Ramp(start=7, num_steps=0).count(7, 5)) == (1.0, 5)


def test_a_ramp_whose_jumps_do_not_fit_ends_with_everything() -> None:
    ramp = Ramp(start=0, num_steps=25, every=10)

    assert [ramp.count(step, 100) for step in (9, 10, 19, 20, 24, 25, 99)] == [0, 78, 78, 99, 99, 100, 100]


def test_a_command_is_ramped_in_the_smallest_weights_first() -> None:
    layer = nn.Linear(4, 8)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([5.0, 1.0, 7.0, 3.0, 9.0, 2.0, 8.0, 6.0])[:, None].expand(8, 4))
    pruning = Pruning(
        layer, KasminaCheckpointPruningConfig(schedule="cubic", ramp_steps=20, ramp_every=5, importance_every=0)
    )

    outcome = pruning.apply(response(mask("weight", [0, 1, 2, 5], 8)), 100)

    assert (outcome.status, outcome.evidence["num_pruned"]) == (APPLIED, 0)
    gone = {}
    for step in range(100, 121):
        pruning.begin_step(step)
        gone[step] = {at for at in range(8) if not layer.weight[at].any()}
    assert [gone[step] for step in (104, 105, 110, 115, 120)] == [
        set(),
        {1, 5},
        {1, 5, 0, 2},
        {1, 5, 0, 2},
        {1, 5, 0, 2},
    ]


def test_the_imaginary_part_of_a_weight_counts_for_its_size() -> None:
    layer = nn.Linear(4, 4, dtype=torch.cfloat)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([3.0j, 2.0, 1.0 + 4.0j, 5.0])[:, None].expand(4, 4))
    pruning = Pruning(
        layer, KasminaCheckpointPruningConfig(schedule="cubic", ramp_steps=3, ramp_every=1, importance_every=0)
    )

    outcome = pruning.apply(response(mask("weight", [0, 1], 4)), 100)

    assert outcome.status == APPLIED
    pruning.begin_step(101)
    assert [bool(row.any()) for row in layer.weight] == [True, False, True, True]


@pytest.mark.parametrize("most", [0.1, 0.3, 0.4, 0.9])
def test_as_large_a_share_as_may_be_pruned_is(most: float) -> None:
    num = round(10 * most)
    pruning = Pruning(nn.Linear(4, 10), KasminaCheckpointPruningConfig(safety_margin=most, importance_every=0))

    outcome = pruning.apply(response(mask("weight", range(num), 10)), 100)

    assert (outcome.status, outcome.evidence.get("num_pruned")) == (APPLIED, num), outcome.detail


def test_a_ramp_goes_on_after_a_checkpoint_and_after_a_rollback_past_its_end() -> None:
    settings = KasminaCheckpointPruningConfig(schedule="cubic", ramp_steps=20, ramp_every=5, importance_every=0)
    model = new_zoo()
    pruning = Pruning(model, settings)
    pruning.apply(response(mask("mix.weight", [0, 1, 2, 5], 8)), 100)
    pruning.begin_step(105)
    num, state, kept = pruning.masks.num_pruned(), pruning.state(), pruning.snapshot()

    resumed = Pruning(new_zoo(), settings)
    resumed.load_state(state)
    resumed.begin_step(106)
    assert 0 < num == resumed.masks.num_pruned() < 4
    resumed.begin_step(120)
    pruning.restore(kept)
    pruning.begin_step(121)

    assert [each.masks.kept(("mix.weight", CHANNEL)).tolist() for each in (pruning, resumed)] == [
        [False, False, False, True, True, False, True, True]
    ] * 2


@pytest.mark.parametrize(("num", "told"), [(12, ["pruning.undone"]), (2, [])])
def test_a_ramp_that_another_process_goes_on_with_ends_where_it_does_harm(num: int, told: list[str]) -> None:
    settings = replace(WATCHED, schedule="cubic", ramp_steps=40, ramp_every=10)
    run, later = Dictated(settings), Dictated(settings)
    run.prune()
    run.step(num=num)
    later.model.load_state_dict(run.model.state_dict())
    later.pruning.load_state(run.pruning.state())
    later.number = run.number

    later.step(num=3)
    later.step(6.0)
    later.step()

    assert bool(run.pruning.masks.num_pruned()) == bool(told)
    assert [event.name for event in later.pruning.take_events()] == told


def test_masks_add_up_and_stay_below_the_largest_share() -> None:
    model = new_zoo()
    pruning = Pruning(model, KasminaCheckpointPruningConfig(importance_every=0))

    first = pruning.apply(response(mask("mix.weight", [0, 1, 2], 8)), 1)
    second = pruning.apply(response(mask("mix.weight", [2, 3, 4], 8)), 2)
    third = pruning.apply(response(mask("mix.weight", [2, 3], 8)), 3)

    assert (first.status, second.status, third.status) == (APPLIED, FAILED, APPLIED)
    assert second.detail == "mask of 'mix.weight' prunes 0.625 of its channels; expected at most 0.5"
    assert [row for row in range(8) if not model.mix.weight[row].any()] == [0, 1, 2, 3]


REFUSED: list[tuple[list[pb.PruningMask], str, str]] = [
    ([mask("mix.weight", [0], 9)], "out_of_range", "'mix.weight' covers 9 channels; expected 8"),
    ([mask("mix.weight", [0], 4, HEAD, 1)], "out_of_range", "covers 4 heads; expected 3"),
    ([mask("mix.weight", [0], 12, dim=1)], "out_of_range", "runs along dimension 1; expected 0"),
    ([mask("mixx.weight", [0], 8)], "unknown_parameter", "'mixx.weight' has no channels that can be pruned"),
    ([mask("mixx.weight", [0], 8)], "unknown_parameter", "near: mix.weight"),
    ([mask("mix.bias", [0], 8)], "unknown_parameter", "near: mix.weight"),
    ([mask("head.weight", [0], 5, HEAD, 1)], "unknown_parameter", "'head.weight' has no heads"),
    ([mask("mix.weight", range(5), 8)], "out_of_range", "prunes 0.625 of its channels; expected at most 0.5"),
    ([mask("mix.weight", [0], 8), mask("mix.weight", [1], 8)], "out_of_range", "two masks of 'mix.weight'"),
    ([mask("mix", [0], 1, LAYER)], "unknown_parameter", "'mix' has no layers that can be pruned; expected one that"),
    ([mask("mix.weight", [0], 96, WEIGHT)], "unknown_parameter", "expected one that the setting weights names"),
]


@pytest.mark.parametrize(("masks", "reason", "detail"), REFUSED, ids=[detail for *_, detail in REFUSED])
def test_a_mask_that_does_not_fit_is_refused_and_nothing_is_touched(
    masks: list[pb.PruningMask], reason: str, detail: str
) -> None:
    model = new_zoo()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    pruning = Pruning(model, KasminaCheckpointPruningConfig(heads=HEADS, importance_every=0))

    outcome = pruning.apply(response(mask("image.weight", [0], 6), *masks), 1)

    assert (outcome.status, reason_name(outcome.reason)) == (FAILED, reason)
    assert detail in outcome.detail
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"channels:nowhere.weight": torch.ones(8)}, "'nowhere.weight' has no channels"),
        ({"channels:mix.weight": torch.ones(7)}, "covers 7 channels; expected 8"),
        ({"rows:mix.weight": torch.ones(8)}, "no entry of a pruning state"),
        ({"ramp": torch.tensor([1, 2, 1]), "order.channels:mix.weight": torch.tensor([8])}, "covers 9 channels"),
        ({"ramp": torch.tensor([1, 2, 1]), "order.channels:nowhere.weight": torch.tensor([1])}, "has no channels"),
    ],
)
def test_a_state_of_another_model_is_refused_and_the_masks_stay(state: dict[str, torch.Tensor], said: str) -> None:
    pruning = Pruning(new_zoo())
    pruning.apply(response(mask("mix.weight", [0], 8)), 1)

    with pytest.raises(RefusedError, match=said):
        pruning.load_state({"channels:image.weight": torch.tensor([0, 1, 1, 1, 1, 1]), **state})

    assert {name for name, _ in pruning.masks.now()} == {"mix.weight"}
