"""Masks hold however a pruned model is run: compiled, exported, copied, recomputed, wrapped."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.pruner import Pruning
from esper.kasmina.pruning.units import HEAD
from tests.pruning_kit import APPLIED, SETTINGS, backward, images, mask, new_zoo, pruned_entries, pruned_zoo, response

BLOCK_HEAD = mask("attention.out_proj.weight", [3], 4, HEAD, dim=1)


def test_what_joins_behind_a_layer_counts_in_pruned_channels_too() -> None:
    """A seed's slot is a forward hook that was there before."""
    model = new_zoo()
    model.mix.register_forward_hook(lambda module, args, output: output + 1.0)

    Pruning(model, SETTINGS).apply(response(mask("mix.weight", [2], 8)), 1)

    assert model.mix(torch.ones(1, 12))[0, 2] == 1.0


def test_pruned_weights_are_exactly_zero_under_autocast() -> None:
    model, _ = pruned_zoo()
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


def test_a_pruned_model_is_exported_with_its_masks() -> None:
    model, _ = pruned_zoo()
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


def test_a_deep_copy_has_masks_of_its_own() -> None:
    model, pruning = pruned_zoo()
    twin = copy.deepcopy(model)
    inputs, _ = images(0)
    before = twin(inputs)

    pruning.apply(response(mask("mix.weight", [2], 8)), 2)

    assert torch.equal(twin(inputs), before)
    assert not torch.equal(model(inputs), before)


def test_a_module_used_twice_and_one_recomputed_in_backward_keep_their_masks() -> None:
    model, _ = pruned_zoo()
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
