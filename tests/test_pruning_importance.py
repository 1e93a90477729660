"""Importance is what a plain float64 loop over the same gradients gives."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from esper.errors import SettingError
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.importance import Importance, ImportanceTracker
from esper.kasmina.pruning.pruner import Pruning
from esper.kasmina.pruning.units import CHANNEL, HEAD, Key, units_of
from tests.pruning_kit import HEADS, backward, mask, new_zoo, response

NUM_STEPS = 4
# Unit, and which entries of which tensor are its channel (or head) number c.
SHARES: list[tuple[Key, int, list[tuple[str, object]]]] = [
    (("image.weight", CHANNEL), 6, [("image.weight", lambda c: c), ("image.bias", lambda c: c)]),
    (("line.weight", CHANNEL), 8, [("line.weight", lambda c: c)]),
    (
        ("backwards.weight", CHANNEL),
        12,
        [("backwards.weight", lambda c: (slice(None), c)), ("backwards.bias", lambda c: c)],
    ),
    (("mix.weight", CHANNEL), 8, [("mix.weight", lambda c: c), ("mix.bias", lambda c: c)]),
    (("mix.weight", HEAD), 3, [("mix.weight", lambda h: (slice(None), slice(4 * h, 4 * h + 4)))]),
    (
        ("attention.out_proj.weight", HEAD),
        4,
        [
            ("attention.in_proj_weight", lambda h: [row + 8 * i for i in range(3) for row in (2 * h, 2 * h + 1)]),
            ("attention.in_proj_bias", lambda h: [row + 8 * i for i in range(3) for row in (2 * h, 2 * h + 1)]),
            ("attention.out_proj.weight", lambda h: (slice(None), slice(2 * h, 2 * h + 2))),
        ],
    ),
]


def measured(num_steps: int = NUM_STEPS) -> tuple[dict[Key, Importance], list[dict[str, tuple[Tensor, Tensor]]]]:
    """Statistics after some steps of SGD, and the weights and gradients of each step in float64."""
    model = new_zoo()
    tracker = ImportanceTracker(units_of(model, HEADS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = []
    for step in range(num_steps):
        optimizer.zero_grad()
        backward(model, step)
        tracker.update()
        steps.append(
            {n: (p.detach().double(), p.grad.double()) for n, p in model.named_parameters() if p.grad is not None}
        )
        optimizer.step()
    assert tracker.num_steps() == num_steps
    return tracker.get_stats(), steps


@pytest.mark.parametrize(("key", "num", "shares"), SHARES, ids=[f"{key[0]}-{key[1]}" for key, *_ in SHARES])
def test_every_kind_equals_a_plain_loop_over_channels_and_steps(key: Key, num: int, shares: list) -> None:  # type: ignore[type-arg]
    stats, steps = measured()

    for channel in range(num):
        norms, taylors, squares = [], [], []
        for step in steps:
            pairs = [(step[name][0][where(channel)], step[name][1][where(channel)]) for name, where in shares]
            squares.append(sum(float((g * g).sum()) for _, g in pairs))
            taylors.append(sum(float((w * g).abs().sum()) for w, g in pairs))
            norms.append(math.sqrt(squares[-1]))
        assert float(stats[key].gradient_norm[channel]) == pytest.approx(sum(norms) / NUM_STEPS, rel=2e-6)
        assert float(stats[key].taylor[channel]) == pytest.approx(sum(taylors) / NUM_STEPS, rel=2e-6)
        assert float(stats[key].fisher[channel]) == pytest.approx(sum(squares) / NUM_STEPS, rel=2e-6)


def test_every_layer_has_its_units_and_shared_ones_none() -> None:
    model = new_zoo()
    tied = nn.ModuleDict({"inside": nn.Embedding(4, 3), "out": nn.Linear(3, 4), "free": nn.Linear(3, 3)})
    tied["out"].weight = tied["inside"].weight

    assert units_of(model, HEADS).keys() == {key for key, *_ in SHARES} | {("head.weight", CHANNEL)}
    assert units_of(tied, {}).keys() == {("free.weight", CHANNEL)}


def test_layers_whose_weights_are_computed_or_not_there_yet_have_no_units() -> None:
    computed = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    host = nn.ModuleDict({"lazy": nn.LazyLinear(4), "computed": computed, "plain": nn.Linear(3, 3)})

    assert units_of(host, {}).keys() == {("plain.weight", CHANNEL)}


def test_a_step_that_is_not_finite_or_that_the_scaler_skips_counts_for_nothing() -> None:
    model = nn.Linear(3, 2)
    tracker = ImportanceTracker(units_of(model, {}))
    model.weight.grad = torch.ones(2, 3)

    tracker.update()
    tracker.update(skipped=torch.ones(()))
    model.weight.grad = torch.tensor([[1.0, math.inf, 1.0], [1.0, 1.0, 1.0]])
    tracker.update()

    [stats] = tracker.get_stats().values()
    assert tracker.num_steps() == 1
    assert stats.fisher.tolist() == [3.0, 3.0]


def test_a_scale_left_in_the_gradients_is_taken_out() -> None:
    model = nn.Linear(3, 2)
    plain, scaled = (ImportanceTracker(units_of(model, {})) for _ in range(2))
    model.weight.grad, model.bias.grad = torch.randn(2, 3), torch.randn(2)
    plain.update()
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad *= 1024
    scaled.update(scale=torch.tensor(1024.0))

    [one], [other] = plain.get_stats().values(), scaled.get_stats().values()
    for name in ("gradient_norm", "taylor", "fisher"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name))


def test_a_parameter_without_a_gradient_contributes_nothing() -> None:
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    tracker = ImportanceTracker(units_of(model, {}))
    model.weight.grad = torch.full((2, 3), 2.0)

    tracker.update()

    assert tracker.get_stats()["weight", CHANNEL].fisher.tolist() == [12.0, 12.0]


def test_sparse_gradients_are_measured_as_the_dense_ones_are() -> None:
    found = []
    for sparse in (True, False):
        torch.manual_seed(1)
        host = nn.Sequential(nn.Embedding(6, 4, sparse=sparse), nn.Linear(4, 3))
        pruning = Pruning(host, KasminaCheckpointPruningConfig(importance_every=1, weights=["0.weight"], layers=["0"]))
        for ids in ([1, 1, 3], [1, 5, 0]):  # micro-batches: their rows are not added up yet
            torch.autograd.backward(host(torch.tensor(ids)).square().sum())
        pruning.importance.update()
        found.append(pruning.importance.get_stats())

    assert len(found[0]) == 3
    for key, each in found[0].items():
        for name in ("gradient_norm", "taylor", "fisher"):
            torch.testing.assert_close(getattr(each, name), getattr(found[1][key], name))


@pytest.mark.parametrize("sparse", [True, False])
def test_a_sparse_gradient_of_single_elements_is_measured_too(sparse: bool) -> None:
    host = nn.ParameterDict({"table": nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))})
    pruning = Pruning(nn.Sequential(host), KasminaCheckpointPruningConfig(importance_every=1, layers=["0"]))
    picked = torch.gather(host["table"], 0, torch.tensor([[1, 0], [1, 2]]), sparse_grad=sparse)
    torch.autograd.backward((picked * torch.tensor([[1.0, 2.0], [4.0, 8.0]])).sum())

    pruning.importance.update()

    [found] = pruning.importance.get_stats().values()
    assert host["table"].grad is not None and host["table"].grad.is_sparse is sparse
    assert found.taylor.tolist() == [3.0 * 5 + 2 * 2 + 6 * 8]
    assert found.fisher.tolist() == pytest.approx([25.0 + 4 + 64])


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the most elements that any tensor had that was made."""

    num_elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        found = [each.numel() for each in tree_leaves(made) if isinstance(each, Tensor) and not each.is_sparse]
        self.num_elements = max(self.num_elements, *found, 0)
        return made


def test_of_a_large_table_only_the_rows_that_were_looked_up_are_measured() -> None:
    host = nn.Sequential(nn.Embedding(1000, 4, sparse=True), nn.Linear(4, 3))
    pruning = Pruning(host, KasminaCheckpointPruningConfig(importance_every=1, layers=["0"]))
    torch.autograd.backward(host(torch.tensor([1, 1, 3])).square().sum())

    with Largest() as largest:  # type: ignore[no-untyped-call]
        pruning.importance.update()

    assert 0 < largest.num_elements < 100


def test_a_complex_weight_is_worth_what_its_moduli_are() -> None:
    host = nn.Linear(2, 1, bias=False, dtype=torch.cfloat)
    tracker = ImportanceTracker(units_of(host, {}))
    host.weight.data.fill_(3 + 4j)
    host.weight.grad = torch.tensor([[2j, 1.0 + 0j]])

    tracker.update()

    found = tracker.get_stats()["weight", CHANNEL]
    assert [float(each) for each in (found.taylor, found.fisher)] == pytest.approx([15.0, 5.0])


def test_ranks_are_averaged() -> None:
    """The mean of two ranks, one of which measured three times as much, is twice this rank's."""
    model = nn.Linear(3, 2)
    tracker = ImportanceTracker(units_of(model, {}), reduce=lambda mine: (mine + 3 * mine) / 2)
    model.weight.grad = torch.ones(2, 3)

    tracker.update()

    assert tracker.get_stats()["weight", CHANNEL].fisher.tolist() == [6.0, 6.0]


def test_nothing_measured_is_not_a_number() -> None:
    tracker = ImportanceTracker(units_of(nn.Linear(3, 2), {}))

    assert tracker.get_stats()["weight", CHANNEL].taylor.isnan().all()


def test_only_every_so_many_steps_are_measured() -> None:
    model = nn.Linear(3, 2)
    pruning = Pruning(model, KasminaCheckpointPruningConfig(importance_every=3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    model.weight.grad = torch.ones(2, 3)

    for _ in range(7):
        pruning.before_optimizer_step(optimizer)

    assert pruning.importance.num_steps() == 3


@pytest.mark.parametrize(
    ("heads", "said"),
    [({"mx": 3}, "near: mix"), ({"mix": 5}, "divides its 12 inputs"), ({"attention": 4}, "a layer of the model")],
)
def test_heads_that_the_model_does_not_have_are_refused(heads: dict[str, int], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Pruning(new_zoo(), KasminaCheckpointPruningConfig(heads=heads))


@pytest.mark.parametrize(
    "field",
    [
        {"safety_margin": 1.0},
        {"schedule": "quadratic"},
        {"max_gradient_ratio": 1.0},
        {"ramp_every": 0},
        {"importance_every": -1},
        {"max_accuracy_drop": -0.1},
        {"heads": {"mix": 1}},
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_meant_is_refused_by_name(field: dict[str, float]) -> None:
    with pytest.raises(SettingError, match=next(iter(field))):
        KasminaCheckpointPruningConfig(**field)  # type: ignore[arg-type]


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_changes_nothing_and_its_skipped_steps_count_for_nothing(fused: bool) -> None:
    plain, scaled = (torch.nn.Linear(3, 2) for _ in range(2))
    scaled.load_state_dict(plain.state_dict())
    trackers = []
    for model, scaler in ((plain, None), (scaled, torch.amp.GradScaler("cpu", init_scale=256.0))):
        pruning = Pruning(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
        optimizer.register_step_pre_hook(lambda optimizer, *_, to=pruning: to.before_optimizer_step(optimizer))
        for factor in (1.0, math.inf, 1.0) if scaler else (1.0, 1.0):
            loss = model(torch.tensor([[1.0, 2.0, 3.0]])).square().sum() * factor
            torch.autograd.backward(scaler.scale(loss) if scaler else loss)
            if scaler:
                scaler.step(optimizer)
                scaler.update()
            else:
                optimizer.step()
            optimizer.zero_grad()
        trackers.append(pruning.importance)

    [one], [other] = (tracker.get_stats().values() for tracker in trackers)
    assert [tracker.num_steps() for tracker in trackers] == [2, 2]
    for name in ("gradient_norm", "taylor", "fisher"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=1e-5, atol=0.0)


class NeverWaits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what would make a host wait for its device: reading a value, or a shape that depends on one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        waits = ("_local_scalar_dense", "nonzero", "equal.default", "is_nonzero", "masked_select", "item")
        assert not any(name in str(func) for name in waits), f"{func} waits for the device"
        return func(*args, **(kwargs or {}))


def test_no_step_that_is_measured_and_watched_reads_a_value() -> None:
    model = new_zoo()
    pruning = Pruning(model, KasminaCheckpointPruningConfig(heads=HEADS))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pruning.apply(response(mask("mix.weight", [1], 8), mask("attention.out_proj.weight", [1], 4, HEAD, 1)), 1)

    watcher = NeverWaits()  # type: ignore[no-untyped-call]

    for step in (1, 2, 3):
        with watcher:
            pruning.begin_step(step)
            backward(model, step)
            pruning.before_optimizer_step(optimizer)
            pruning.after_optimizer_step()
    with pytest.raises(AssertionError, match="waits for the device"), watcher:
        pruning.begin_step(8)

    assert pruning.importance.num_steps() == 3
