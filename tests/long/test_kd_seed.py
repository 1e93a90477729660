"""A seed learns from a teacher through its own output, and nothing else does."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from esper.errors import SettingError
from esper.kasmina.kd import SeedDistillation, StaticKDLoss
from esper.kasmina.seeds.seed import compiled_graphs
from tests.seed_kit import Bench, batch, equal, loss_of


def taught(stage: str) -> tuple[Bench, SeedDistillation, Tensor]:
    """A seed at the head in this stage, and what a teacher says of the batch of the next step."""
    bench = Bench()
    bench.raise_seed(stage, site="head")
    torch.manual_seed(9)
    teacher = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    return bench, SeedDistillation(bench.host, bench.executor, "head"), teacher(batch(bench.step + 1)[0]).detach()


def seed_gradients(bench: Bench) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in bench.executor.seeds["s0"].trainable() if p.grad is not None}
    for _, parameter in bench.executor.seeds["s0"].trainable():
        parameter.grad = None
    return found


def host_gradients(bench: Bench) -> dict[str, Tensor]:
    found = {name: p.grad.clone() for name, p in bench.host.named_parameters() if p.grad is not None}
    bench.host.zero_grad()
    return found


@pytest.mark.parametrize("stage", ["TRAINING", "BLENDING", "SHADOWING", "PROBATIONARY"])
def test_the_host_gets_the_gradients_that_it_gets_without_distillation(stage: str) -> None:
    bench, distillation, logits = taught(stage)
    inputs, targets = batch(bench.step + 1)
    torch.autograd.backward(loss_of(bench.host(inputs), targets).mean())
    alone, of_seed = host_gradients(bench), seed_gradients(bench)

    loss = loss_of(bench.host(inputs), targets).mean()
    torch.autograd.backward(loss + distillation.loss(logits))

    assert equal(host_gradients(bench), alone)
    assert not equal(seed_gradients(bench), of_seed)


def test_the_seed_gets_the_gradient_of_the_formula_on_top_of_its_own() -> None:
    bench, distillation, logits = taught("TRAINING")
    seed, inputs = bench.executor.seeds["s0"], batch(bench.step + 1)[0]
    with torch.no_grad():
        h_in = bench.host.act(bench.host.body(inputs))
        h = nn.functional.linear(h_in, bench.host.head.weight, bench.host.head.bias)
    assert seed.module is not None
    torch.autograd.backward(StaticKDLoss()(h + seed.module(h_in, h), logits))
    expected = seed_gradients(bench)

    bench.host(inputs)
    torch.autograd.backward(distillation.loss(logits))

    found = seed_gradients(bench)
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[name], expected[name], rtol=1e-4, atol=1e-7) for name in found)


def test_where_no_seed_learns_the_loss_is_zero_and_nothing_is_kept() -> None:
    bench = Bench()
    distillation = SeedDistillation(bench.host, bench.executor, "head")
    bench.host(batch(1)[0])

    assert not distillation.loss(torch.zeros(64, 3)).any() and not distillation.loss(None).any()


def test_outputs_that_are_not_finite_count_nothing() -> None:
    bench, distillation, logits = taught("TRAINING")
    seed = bench.executor.seeds["s0"]
    with torch.no_grad():
        for _, parameter in seed.trainable():
            parameter.fill_(1e38)
    bench.host(batch(bench.step + 1)[0])

    assert distillation.loss(logits).isfinite()


def test_positions_where_the_teacher_is_not_finite_count_nothing() -> None:
    bench, distillation, logits = taught("TRAINING")
    logits = logits.clone()
    logits[::2] = torch.nan
    bench.host(batch(bench.step + 1)[0])

    loss = distillation.loss(logits)
    torch.autograd.backward(loss)

    assert loss.isfinite() and loss > 0
    assert all(gradient.isfinite().all() for gradient in seed_gradients(bench).values())


class Writes(nn.Module):
    """To what it was given, once its delta has been computed from it."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        delta = self.up * h
        h.mul_(2.0)
        return delta


def test_a_seed_that_writes_to_what_it_was_given_ends_no_backward_of_the_script() -> None:
    bench, distillation, logits = taught("TRAINING")
    bench.executor.seeds["s0"].module = Writes()
    inputs, targets = batch(bench.step + 1)
    torch.autograd.backward(loss_of(bench.host(inputs), targets).mean())
    alone = host_gradients(bench)

    loss = loss_of(bench.host(inputs), targets).mean() + distillation.loss(logits)
    torch.autograd.backward(loss)

    assert equal(host_gradients(bench), alone)


def test_logits_of_another_shape_and_a_site_that_does_not_exist_are_refused() -> None:
    bench, distillation, _ = taught("TRAINING")
    bench.host(batch(1)[0])

    with pytest.raises(SettingError, match=r"shape of teacher_logits is \(64, 5\); expected the site's, \(64, 3\)"):
        distillation.loss(torch.zeros(64, 5))
    with pytest.raises(SettingError, match="tail"):
        SeedDistillation(bench.host, bench.executor, "tail")


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_backward_computes_again_is_no_batch_of_the_next_loss(reentrant: bool) -> None:
    bench, distillation, logits = taught("TRAINING")
    inputs, targets = batch(bench.step + 1)
    outputs = checkpoint(bench.host, inputs.requires_grad_(), use_reentrant=reentrant)
    added = distillation.loss(logits)
    torch.autograd.backward(loss_of(outputs, targets).mean() + added)

    later = distillation.loss(torch.zeros(5, 3))

    assert bool(added) is not reentrant and not later


def test_what_no_loss_has_used_is_no_batch_of_the_next_step() -> None:
    bench, distillation, logits = taught("TRAINING")
    bench.host(batch(bench.step)[0])  # behind its step, as for another model's loss
    bench.executor.begin_step(bench.step + 1, 0)

    inputs = batch(bench.step + 1)[0][:5].requires_grad_()
    checkpoint(bench.host, inputs, use_reentrant=True)

    assert not distillation.loss(logits[:5])


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")  # torch's, as it traces
def test_no_graph_is_made_again_for_another_step() -> None:
    bench, distillation, logits = taught("TRAINING")
    host, inputs, made = torch.compile(bench.host, backend="eager"), batch(1)[0], []
    for step in range(bench.step + 1, bench.step + 4):
        bench.executor.begin_step(step, 0)
        host(inputs)
        assert distillation.loss(logits)
        made.append(compiled_graphs())

    assert made[0] == made[-1] > 0


def test_where_no_seed_learns_a_whole_graph_is_made_of_the_model() -> None:
    bench = Bench()
    distillation, inputs = SeedDistillation(bench.host, bench.executor, "head"), batch(1)[0]

    outputs = torch.compile(bench.host, backend="eager", fullgraph=True)(inputs)

    assert torch.equal(outputs, bench.host(inputs)) and not distillation.loss(torch.zeros(5, 3))


def test_the_model_is_copied_and_saved_as_without_it() -> None:
    bench, _, _ = taught("TRAINING")
    inputs, written = batch(1)[0], io.BytesIO()

    copied = copy.deepcopy(bench.host)
    torch.save(bench.host, written)
    written.seek(0)
    read = torch.load(written, weights_only=False)

    assert torch.equal(copied(inputs), bench.host(inputs)) and torch.equal(read(inputs), bench.host(inputs))
    assert len(written.getvalue()) < 20_000  # and nothing of the executor with it


def test_closed_it_leaves_no_hook_behind() -> None:
    bench = Bench()
    before = len(bench.host.head._forward_hooks)
    distillation = SeedDistillation(bench.host, bench.executor, "head")

    distillation.close()

    assert len(bench.host.head._forward_hooks) == before
