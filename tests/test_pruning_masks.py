"""What is pruned stays at zero, whatever trains the model and however it is run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.pruner import Pruning
from esper.kasmina.pruning.units import HEAD
from tests.pruning_kit import APPLIED, HEADS, Zoo, backward, images, mask, new_zoo, response

SETTINGS = KasminaCheckpointPruningConfig(heads=HEADS, importance_every=0)
EVERYTHING = response(
    mask("image.weight", [1, 4], 6),
    mask("line.weight", [0], 8),
    mask("attention.out_proj.weight", [2], 4, HEAD, dim=1),
    mask("backwards.weight", [3, 5], 12, dim=1),
    mask("mix.weight", [0, 7], 8),
    mask("mix.weight", [1], 3, HEAD, dim=1),
)
BLOCK_HEAD = mask("attention.out_proj.weight", [3], 4, HEAD, dim=1)
LR, DECAY = 0.05, 0.3
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, momentum=0.9, nesterov=True, lr=LR, weight_decay=DECAY),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=LR, weight_decay=DECAY),
    "adamw-fused": lambda parameters: torch.optim.AdamW(parameters, fused=True, lr=LR, weight_decay=DECAY),
}


def pruned_entries(model: nn.Module, of: Callable[[nn.Parameter], Tensor | None]) -> Tensor:
    """Every weight, or gradient, that EVERYTHING has pruned, in one row."""
    shares: list[tuple[str, object]] = [
        ("image.weight", [1, 4]),
        ("image.bias", [1, 4]),
        ("line.weight", [0]),
        ("attention.in_proj_weight", [4, 5, 12, 13, 20, 21]),
        ("attention.in_proj_bias", [4, 5, 12, 13, 20, 21]),
        ("attention.out_proj.weight", (slice(None), [4, 5])),
        ("backwards.weight", (slice(None), [3, 5])),
        ("backwards.bias", [3, 5]),
        ("mix.weight", [0, 7]),
        ("mix.bias", [0, 7]),
        ("mix.weight", (slice(None), slice(4, 8))),
    ]
    found = []
    for name, where in shares:
        tensor = of(model.get_parameter(name))
        assert tensor is not None
        found.append(tensor[where].flatten())  # type: ignore[index]
    return torch.cat(found)


def train(model: nn.Module, pruning: Pruning, optimizer: torch.optim.Optimizer, first: int, num: int) -> None:
    for step in range(first, first + num):
        pruning.begin_step(step)
        optimizer.zero_grad()
        backward(model, step)
        pruning.before_optimizer_step(optimizer)
        optimizer.step()
        pruning.after_optimizer_step()


@pytest.fixture
def zoo() -> tuple[Zoo, Pruning]:
    """Pruned, and not trained yet."""
    model = new_zoo()
    pruning = Pruning(model, SETTINGS)
    assert pruning.apply(EVERYTHING, 1).status == APPLIED
    return model, pruning


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_momentum_and_decay_revive_nothing(name: str) -> None:
    model = new_zoo()
    pruning = Pruning(model, SETTINGS)
    optimizer = OPTIMIZERS[name](list(model.parameters()))
    train(model, pruning, optimizer, 1, 10)  # momentum and moments of what is pruned next
    others = model.head.weight.detach().clone()

    assert pruning.apply(EVERYTHING, 11).status == APPLIED
    for step in range(11, 31):
        train(model, pruning, optimizer, step, 1)
        assert not pruned_entries(model, lambda p: p.detach()).any()
        assert not pruned_entries(model, lambda p: p.grad).any()

    assert not torch.equal(model.head.weight, others)


def test_weights_that_come_back_by_another_way_have_no_effect(zoo: tuple[Zoo, Pruning]) -> None:
    model, _ = zoo
    inputs, _ = images(0)
    before = model(inputs)

    with torch.no_grad():
        for p, dim, where in [
            (model.image.weight, 0, [1, 4]),
            (model.mix.bias, 0, [0, 7]),
            (model.mix.weight, 1, [4, 5]),
            (model.attention.in_proj_weight, 0, [20, 21]),
            (model.attention.out_proj.weight, 1, [4]),
        ]:
            p.index_fill_(dim, torch.tensor(where), 3.0)

    assert torch.equal(model(inputs), before)


def test_a_pruned_model_is_the_model_with_those_weights_at_zero(zoo: tuple[Zoo, Pruning]) -> None:
    model, _ = zoo
    bare = new_zoo()
    bare.load_state_dict(model.state_dict())
    inputs, _ = images(0)

    assert not pruned_entries(bare, lambda p: p.detach()).any()
    torch.testing.assert_close(model(inputs), bare(inputs))


def test_what_joins_behind_a_layer_counts_in_pruned_channels_too() -> None:
    """A seed's slot is a forward hook that was there before."""
    model = new_zoo()
    model.mix.register_forward_hook(lambda module, args, output: output + 1.0)

    Pruning(model, SETTINGS).apply(response(mask("mix.weight", [2], 8)), 1)

    assert model.mix(torch.ones(1, 12))[0, 2] == 1.0


def test_names_and_parameters_stay_what_they_are() -> None:
    model = new_zoo()
    names, ids = [*model.state_dict()], [id(p) for p in model.parameters()]

    pruning = Pruning(model, SETTINGS)
    pruning.apply(EVERYTHING, 1)

    assert [*model.state_dict()] == names
    assert [id(p) for p in model.parameters()] == ids


def test_the_rest_learns_as_if_the_pruned_had_never_been(zoo: tuple[Zoo, Pruning]) -> None:
    """Gradients of what is kept are those of a model whose pruned weights are zero."""
    model, _ = zoo
    bare = new_zoo()
    bare.load_state_dict(model.state_dict())

    backward(model, 3)
    backward(bare, 3)

    assert not pruned_entries(model, lambda p: p.grad).any()
    assert pruned_entries(bare, lambda p: p.grad).any()
    for name in ("head.weight", "line.weight"):
        mine, theirs = model.get_parameter(name).grad, bare.get_parameter(name).grad
        assert mine is not None and theirs is not None
        torch.testing.assert_close(mine[1:], theirs[1:])


def test_pruned_weights_are_exactly_zero_under_autocast(zoo: tuple[Zoo, Pruning]) -> None:
    model, _ = zoo
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model.mix(torch.ones(2, 12)).dtype == torch.bfloat16
        backward(model, 1)

    assert not pruned_entries(model, lambda p: p.grad).any()


class Block(nn.Module):
    """Every kind of gate, in as little as compiles fast."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)
        self.mix = nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mix(self.attention(x, x, x, need_weights=False)[0])
        return y


def test_more_masks_under_compile_are_seen_and_compile_nothing_anew() -> None:
    model, counter = Block(), CompileCounterWithBackend("aot_eager")
    pruning = Pruning(model, KasminaCheckpointPruningConfig(heads={"mix": 4}))
    pruning.apply(response(*(mask("mix.weight", [1], 4, HEAD, 1), mask("mix.weight", [0], 6)), BLOCK_HEAD), 1)
    torch._dynamo.config.skip_nnmodule_hook_guards = False  # as the executor has it
    compiled, x = torch.compile(model, backend=counter, fullgraph=True), torch.randn(2, 5, 8)
    compiled(x)
    frames = counter.frame_count

    assert pruning.apply(response(mask("mix.weight", [2], 6), mask("mix.weight", [2], 4, HEAD, 1)), 2).status == APPLIED
    torch.autograd.backward(compiled(x).square().mean())

    assert counter.frame_count == frames == 1
    torch.testing.assert_close(compiled(x), model(x))
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert not gradients["mix.weight"][[0, 2]].any() and not gradients["mix.weight"][:, 2:6].any()
    assert not gradients["attention.in_proj_weight"][[6, 7, 14, 15, 22, 23]].any()
    assert gradients["mix.weight"][1, 0] and gradients["attention.in_proj_weight"][0].any()


def test_a_pruned_model_is_exported_with_its_masks(zoo: tuple[Zoo, Pruning]) -> None:
    model, _ = zoo
    inputs, _ = images(0)

    exported = torch.export.export(model, (inputs,)).module()

    torch.testing.assert_close(exported(inputs), model(inputs))


@pytest.mark.parametrize(
    "options", [{"kdim": 6, "vdim": 5}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"bias": False}], ids=str
)
def test_a_pruned_head_learns_nothing_in_any_kind_of_attention(options: dict[str, Any]) -> None:
    attention = nn.MultiheadAttention(8, 4, **options)
    pruning = Pruning(attention, KasminaCheckpointPruningConfig(importance_every=0))
    pruning.apply(response(mask("out_proj.weight", [1], 4, HEAD, dim=1)), 1)

    x = torch.randn(3, 2, 8)
    y, _ = attention(x, torch.randn(3, 2, options.get("kdim", 8)), torch.randn(3, 2, options.get("vdim", 8)))
    torch.autograd.backward(y.square().sum())

    for name, p in attention.named_parameters():
        assert p.grad is not None
        if name == "out_proj.bias":
            continue
        dim = 0 if "in_proj" in name or name[1:] == "_proj_weight" else p.ndim - 1
        rows = p.grad.movedim(dim, 0)
        heads = rows.reshape(-1, 4, 2, rows[0].numel())
        assert not heads[:, 1].any() and heads[:, 0].any(), name


def test_the_fast_path_of_an_encoder_in_eval_mode_sees_the_masks() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 1)
    masks = mask("layers.0.linear1.weight", [1, 2], 16), mask("layers.0.self_attn.out_proj.weight", [1], 2, HEAD, 1)
    assert Pruning(encoder).apply(response(*masks), 1).status == APPLIED
    x = torch.randn(2, 4, 8)
    trained = encoder(x)

    with torch.inference_mode():
        torch.testing.assert_close(encoder.eval()(x), trained)


def test_a_deep_copy_has_masks_of_its_own(zoo: tuple[Zoo, Pruning]) -> None:
    model, pruning = zoo
    twin = copy.deepcopy(model)
    inputs, _ = images(0)
    before = twin(inputs)

    pruning.apply(response(mask("mix.weight", [2], 8)), 2)

    assert torch.equal(twin(inputs), before)
    assert not torch.equal(model(inputs), before)


def test_a_module_used_twice_and_one_recomputed_in_backward_keep_their_masks(zoo: tuple[Zoo, Pruning]) -> None:
    model, _ = zoo
    x = torch.randn(2, 5, 8)

    y = model.attention(x, x, x, need_weights=False)[0]
    y = model.attention(y, y, y, need_weights=False)[0]
    z = checkpoint(lambda v: model.mix(model.backwards(v)), y, use_reentrant=False)
    torch.autograd.backward(z.square().mean())

    assert model.mix.weight.grad is not None and model.attention.in_proj_weight.grad is not None
    assert model.mix.weight.grad[1].any() and not model.mix.weight.grad[[0, 7]].any()
    assert not model.attention.in_proj_weight.grad[[4, 5, 12, 13, 20, 21]].any()


def test_wrappers_names_are_ignored() -> None:
    """DistributedDataParallel and torch.compile put pieces into names; commands may carry them or not."""
    inner = new_zoo()
    compiled: Any = torch.compile(inner, backend="eager")
    wrapped = nn.ModuleDict({"module": compiled})

    outcomes = [
        Pruning(wrapped, SETTINGS).apply(response(mask(name, [1], 6)), 1)
        for name in ("image.weight", "module.image.weight", "module._orig_mod.image.weight")
    ]

    assert [outcome.status for outcome in outcomes] == [APPLIED] * 3
    assert not inner.image.weight[1].any()


def test_masks_survive_a_checkpoint(zoo: tuple[Zoo, Pruning]) -> None:
    model, pruning = zoo
    weights, state = model.state_dict(), pruning.state()
    later = new_zoo()
    later.load_state_dict(weights)

    resumed = Pruning(later, SETTINGS)
    resumed.load_state(state)

    optimizer = OPTIMIZERS["sgd"](list(later.parameters()))
    train(later, resumed, optimizer, 1, 5)
    assert not pruned_entries(later, lambda p: p.detach()).any()
    assert resumed.masks.num_pruned() == pruning.masks.num_pruned() == 9
    assert all(isinstance(value, Tensor) for value in state.values())


def test_closing_leaves_zeros_and_no_hook(zoo: tuple[Zoo, Pruning]) -> None:
    model, pruning = zoo

    pruning.close()

    assert not pruned_entries(model, lambda p: p.detach()).any()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_without_masks_training_is_that_of_the_bare_model() -> None:
    model, bare = new_zoo(), new_zoo()
    pruning = Pruning(model, KasminaCheckpointPruningConfig(heads=HEADS))
    train(model, pruning, OPTIMIZERS["adamw"](list(model.parameters())), 1, 3)
    optimizer = OPTIMIZERS["adamw"](list(bare.parameters()))
    for step in range(1, 4):
        optimizer.zero_grad()
        backward(bare, step)
        optimizer.step()

    assert all(map(torch.equal, model.parameters(), bare.parameters()))
