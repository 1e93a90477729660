"""Whole modules and single weights, where settings name them: measured, pruned, undone and persisted as channels."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend

from esper.errors import RefusedError, SettingError
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.messages import MOST_VALUES
from esper.kasmina.pruning.plan import plan
from esper.kasmina.pruning.pruner import Pruning
from esper.kasmina.pruning.units import LAYER, WEIGHT
from esper.kasmina.pruning.whole import MOST_WEIGHTS
from esper.leyline import commands, contracts as pb
from esper.leyline.envelope import BODY_CAP_BYTES, COMMAND_CAP_BYTES
from esper.leyline.lifecycle import reason_name
from esper.leyline.validate.messages import rule_of
from tests.pruning_kit import APPLIED, FAILED, OPTIMIZERS, Zoo, backward, images, lift, mask, new_zoo, response, train
from tests.rounds import heartbeat

SETTINGS = KasminaCheckpointPruningConfig(
    layers=("attention", "backwards"), weights=("mix.weight", "head.bias", "attention.out_proj.weight")
)
GONE = [0, 3, 4, 50, 95]  # of the 8 x 12 weights of `mix`
OF_MIX = mask("mix.weight", GONE, 96, WEIGHT)
OF_OUTPUT = mask("attention.out_proj.weight", [1, 63], 64, WEIGHT)
OF_ATTENTION = mask("attention", [0], 1, LAYER)


def pruned_mix(model: Zoo, of: Callable[[Tensor], Tensor | None] = lambda p: p.detach()) -> Tensor:
    """What the mask covers of the weight, or of its gradient."""
    tensor = of(model.mix.weight)
    assert tensor is not None
    return tensor.flatten()[GONE]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_single_weights_stay_at_zero_and_have_no_gradient(name: str) -> None:
    model = new_zoo()
    pruning = Pruning(model, SETTINGS)
    optimizer = OPTIMIZERS[name](list(model.parameters()))
    train(model, pruning, optimizer, 1, 5)

    assert pruning.apply(response(OF_MIX, OF_OUTPUT), 6).status == APPLIED
    for step in range(6, 16):
        train(model, pruning, optimizer, step, 1)
        assert not pruned_mix(model).any()
        assert not pruned_mix(model, lambda p: p.grad).any()
        assert model.attention.out_proj.weight.detach().flatten()[[1, 63]].tolist() == [0.0, 0.0]

    assert int((model.mix.weight == 0).sum()) == len(GONE)


def test_single_weights_of_a_table_with_sparse_gradients_are_pruned_as_of_a_dense_one() -> None:
    tables, gone = [], [5, 6, 13]
    for sparse in (True, False):
        torch.manual_seed(1)
        table = nn.Embedding(6, 4, sparse=sparse)
        pruning = Pruning(table, KasminaCheckpointPruningConfig(weights=("weight",)))
        assert pruning.apply(response(mask("weight", gone, 24, WEIGHT)), 1).status == APPLIED
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9)
        for step in range(1, 5):
            optimizer.zero_grad()
            torch.autograd.backward((table(torch.tensor([1, 3, 1, step])) - 1.0).square().sum())
            gradient = table.weight.grad
            assert gradient is not None and not gradient.to_dense().flatten()[gone].any()
            optimizer.step()
            pruning.after_optimizer_step()
        tables.append(table.weight.detach())

    assert not tables[0].flatten()[gone].any()
    torch.testing.assert_close(*tables)


def test_the_other_weights_learn_as_under_masks_kept_by_hand() -> None:
    model, twin = new_zoo(), new_zoo()
    pruning = Pruning(model, KasminaCheckpointPruningConfig(weights=["mix.weight"], importance_every=0))
    train_args: dict[str, Any] = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.3}
    optimizer, by_hand = (torch.optim.SGD(each.parameters(), **train_args) for each in (model, twin))
    assert pruning.apply(response(OF_MIX), 1).status == APPLIED

    train(model, pruning, optimizer, 1, 6)
    kept = torch.ones(96)
    kept[GONE] = 0
    for step in range(1, 7):
        with torch.no_grad():
            twin.mix.weight.mul_(kept.reshape(8, 12))
        by_hand.zero_grad()
        backward(twin, step)
        assert twin.mix.weight.grad is not None
        twin.mix.weight.grad.mul_(kept.reshape(8, 12))
        by_hand.step()

    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_weights_that_come_back_by_another_way_have_no_effect() -> None:
    model = new_zoo()
    Pruning(model, SETTINGS).apply(response(OF_MIX, OF_OUTPUT), 1)
    inputs, _ = images(0)
    before = model(inputs)

    with torch.no_grad():
        model.mix.weight.view(-1)[GONE] = 3.0
        model.attention.out_proj.weight.view(-1)[[1, 63]] = 3.0

    assert torch.equal(model(inputs), before)


def test_a_pruned_module_gives_nothing_and_learns_nothing() -> None:
    model = new_zoo()
    pruning = Pruning(model, SETTINGS)
    optimizer = OPTIMIZERS["adamw"](list(model.parameters()))
    train(model, pruning, optimizer, 1, 5)

    assert pruning.apply(response(OF_ATTENTION), 6).status == APPLIED
    train(model, pruning, optimizer, 6, 5)

    assert not any(p.any() or (p.grad is not None and p.grad.any()) for p in model.attention.parameters())
    x = torch.randn(2, 4, 8)
    output, _ = model.attention(x, x, x)
    assert not output.any()
    bare = new_zoo()
    bare.load_state_dict(model.state_dict())
    inputs, _ = images(9)
    without = torch.relu(bare.line(bare.image(inputs).flatten(2))).transpose(1, 2)  # the branch left out
    left = bare.head(torch.relu(bare.mix(torch.tanh(bare.backwards(without)))).mean(1))
    torch.testing.assert_close(model(inputs), left, rtol=0, atol=1e-6)


def test_importance_of_weights_and_of_modules_is_that_of_a_plain_loop() -> None:
    model = new_zoo()
    pruning = Pruning(model, SETTINGS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    expected = torch.zeros(3, 96, dtype=torch.float64)
    module = torch.zeros(3, dtype=torch.float64)
    for step in range(1, 4):
        optimizer.zero_grad()
        backward(model, step)
        w, g = (each.detach().double().flatten() for each in (model.mix.weight, gradient_of(model.mix.weight)))
        expected += torch.stack((g.abs(), (w * g).abs(), g * g)) / 3
        pairs = [(p.detach().double(), gradient_of(p).double()) for p in model.backwards.parameters()]
        w, g = (torch.cat([each[of].flatten() for each in pairs]) for of in (0, 1))
        module += torch.stack((g.norm(), (w * g).abs().sum(), (g * g).sum())) / 3
        pruning.before_optimizer_step(optimizer)
        optimizer.step()

    told = {each.parameter: each for part in pruning.export("r", "", 4) for each in part.importance}

    for name, want in (("mix.weight", expected), ("backwards", module[:, None])):
        got = torch.tensor([told[name].gradient_norm, told[name].taylor, told[name].fisher])
        torch.testing.assert_close(got, want.float(), rtol=1e-5, atol=1e-9)
    assert (told["mix.weight"].mask_type, told["backwards"].mask_type) == (WEIGHT, LAYER)


def gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad.detach()


@pytest.mark.parametrize("masks", [[OF_MIX, OF_OUTPUT], [OF_ATTENTION], [OF_MIX, OF_ATTENTION]])
def test_what_was_pruned_comes_back_bit_for_bit(masks: list[pb.PruningMask]) -> None:
    model = new_zoo()
    model.image.weight.data = model.image.weight.data.contiguous(memory_format=torch.channels_last)
    before = copy.deepcopy(model.state_dict())
    pruning = Pruning(model, SETTINGS)
    assert pruning.apply(response(*masks), 1).status == APPLIED
    assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())

    outcome = pruning.apply(lift("no good"), 2)

    assert outcome.detail.endswith("channels, heads, layers and weights restored: no good")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(p._backward_hooks for p in model.parameters())


def test_a_checkpoint_holds_eight_weights_to_a_byte() -> None:
    model, later = new_zoo(), new_zoo()
    pruning = Pruning(model, SETTINGS)
    pruning.apply(response(OF_MIX, OF_ATTENTION), 1)
    state = pruning.state()

    later.load_state_dict(model.state_dict())
    resumed = Pruning(later, SETTINGS)
    resumed.load_state(state)

    assert (state["weights:mix.weight"].numel(), state["weights:mix.weight"].dtype) == (12, torch.uint8)
    train(later, resumed, OPTIMIZERS["sgd"](list(later.parameters())), 1, 3)
    assert not pruned_mix(later).any() and not any(p.any() for p in later.attention.parameters())
    assert resumed.masks.num_pruned() == pruning.masks.num_pruned() == len(GONE) + 1
    with pytest.raises(RefusedError, match=r"'mix\.weight' covers 88 weights; expected 96"):
        resumed.load_state({"weights:mix.weight": torch.zeros(11, dtype=torch.uint8)})


def test_a_deep_copy_has_masks_of_its_own_and_closing_leaves_zeros_and_no_hook() -> None:
    model = new_zoo()
    pruning = Pruning(model, SETTINGS)
    pruning.apply(response(OF_MIX, OF_ATTENTION), 1)
    average = copy.deepcopy(model)

    pruning.close()

    assert not pruned_mix(model).any() and not any(p.any() for p in model.attention.parameters())
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())
    assert not any(p._backward_hooks for p in model.parameters())
    with torch.no_grad():
        average.attention.out_proj.bias.fill_(1.0)
    x = torch.randn(1, 4, 8)
    assert not average.attention(x, x, x)[0].any()


def test_more_of_them_under_compile_are_seen_and_compile_nothing_anew() -> None:
    torch.compiler.reset()
    model, counter = new_zoo(), CompileCounterWithBackend("eager")
    pruning = Pruning(model, SETTINGS)
    pruning.apply(response(mask("mix.weight", [0], 96, WEIGHT), OF_ATTENTION), 1)
    compiled: Any = torch.compile(model, backend=counter)
    inputs, _ = images(0)
    compiled(inputs).sum().backward()
    frames = counter.frame_count

    pruning.apply(response(OF_MIX), 2)
    model.zero_grad()
    compiled(inputs).sum().backward()

    assert counter.frame_count == frames
    assert torch.equal(compiled(inputs), model(inputs))
    assert not pruned_mix(model, lambda p: p.grad).any()


@pytest.mark.parametrize(
    ("masks", "reason", "detail"),
    [
        (
            [mask("mix.weight", range(49), 96, WEIGHT)],
            "out_of_range",
            "prunes 0.5104 of its weights; expected at most 0.5",
        ),
        ([mask("mix.weight", [0], 95, WEIGHT)], "out_of_range", "covers 95 weights; expected 96"),
        (
            [OF_ATTENTION, mask("backwards", [0], 1, LAYER)],
            "out_of_range",
            "prunes 1 of the layers; expected at most 0.5",
        ),
        ([mask("mix", [0], 1, LAYER)], "unknown_parameter", "expected one that the setting layers names"),
        ([mask("mix.weight", [0], 8)], "unknown_parameter", "'mix.weight' has no channels that can be pruned"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(masks: list[pb.PruningMask], reason: str, detail: str) -> None:
    model = new_zoo()
    before = copy.deepcopy(model.state_dict())

    outcome = Pruning(model, SETTINGS).apply(response(OF_OUTPUT, *masks), 1)

    assert (outcome.status, reason_name(outcome.reason)) == (FAILED, reason)
    assert detail in outcome.detail
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def tied() -> nn.Module:
    host = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "act": nn.ReLU(), "big": nn.Linear(300, 300)})
    host["b"].weight = host["a"].weight
    host["norm"] = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    return host


@pytest.mark.parametrize(
    ("field", "name", "said"),
    [
        ("layers", "c", "layers is 'c'; expected a module of the model"),
        ("layers", "act", "expected a module of the model, with whole parameters"),
        ("layers", "a", "neither computes nor shares"),
        ("layers", "norm", "neither computes nor shares"),
        ("weights", "big.weigth", "a parameter of the model; near: big.weight"),
        ("weights", "a.weight", "that one module alone holds"),
        ("weights", "big.weight", f"big.weight, 90000 weights'; expected at most {MOST_WEIGHTS}"),
    ],
)
def test_a_name_that_cannot_be_pruned_alone_is_refused(field: str, name: str, said: str) -> None:
    fields: dict[str, Any] = {field: [name]}
    wrong: dict[str, Any] = {field: name}

    with pytest.raises(SettingError, match=said.replace("(", ".")):
        Pruning(tied(), KasminaCheckpointPruningConfig(**fields))
    with pytest.raises(SettingError, match="expected a list of names"):
        replace(SETTINGS, **wrong)


def test_the_most_weights_that_may_be_told_and_pruned_fit_their_messages() -> None:
    host = nn.Sequential(nn.Linear(256, 256, bias=False), nn.Linear(MOST_VALUES - 1, 1))
    settings = KasminaCheckpointPruningConfig(weights=["0.weight"])

    parts = Pruning(host, settings).export("r", "", 1)
    masks = response(mask("0.weight", range(100), MOST_WEIGHTS, WEIGHT))

    for part in parts:
        beat = heartbeat()
        beat.pruning.CopyFrom(part)
        rule_of(pb.Heartbeat)(beat)
        assert beat.ByteSize() < 0.9 * BODY_CAP_BYTES
    command = commands.pruning_masks(masks)
    rule_of(pb.AdaptationCommand)(command)
    assert command.ByteSize() < COMMAND_CAP_BYTES / 4


def test_modules_are_planned_only_where_they_are_named() -> None:
    worth = {"a": 3.0, "b": 1.0, "c": 2.0}
    entries = [
        pb.ChannelImportance(parameter=name, mask_type=LAYER, gradient_norm=[1.0], taylor=[value], fisher=[1.0])
        for name, value in worth.items()
    ]
    request = pb.StructuralPruningRequest(request_id="r", importance=entries, num_parts=1)

    assert not plan([request], 0.9).pruning_masks
    assert [each.parameter for each in plan([request], 0.7, only=["a", "b", "c"]).pruning_masks] == ["b", "c"]
    assert [each.parameter for each in plan([request], 0.5, only=["a", "b"]).pruning_masks] == ["b"]
