"""What optimizer commands do to the host's optimizer and to the seeds' own."""

from __future__ import annotations

import pytest
import torch

from esper.leyline import contracts as pb
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.optimizers.surroundings import Surroundings
from esper.tolaria.reduce import SeedReducer
from tests.optimizer_kit import (
    APPLIED,
    FAILED,
    Kind,
    Seedling,
    adjustment,
    command,
    host,
    optimizers,
    refusal,
    step_host,
)


def create(**hyperparameters: float) -> pb.OptimizerCommand:
    return pb.OptimizerCommand(
        command_type=Kind.OPTIMIZER_COMMAND_CREATE_SEED, optimizer_id="s0", hyperparameters=hyperparameters
    )


def test_a_seed_steps_exactly_as_an_adamw_with_its_hyperparameters() -> None:
    seed, twin = Seedling(), torch.nn.Parameter(torch.ones(2, 2))
    reference = torch.optim.AdamW([twin], lr=0.05, weight_decay=0.3, betas=(0.8, 0.99), eps=1e-6)
    governed = optimizers()

    outcome = governed.apply(create(lr=0.05, weight_decay=0.3, beta1=0.8, beta2=0.99, eps=1e-6), 1, {"s0": seed})
    for step in range(5):
        seed.has_gradient(0.5 + step)
        governed.step(step)
        twin.grad = torch.full((2, 2), 0.5 + step)
        reference.step()

    assert outcome.status == APPLIED
    assert torch.equal(seed.weight, twin)


def test_gradients_are_gone_after_a_step() -> None:
    seed, governed = Seedling(), optimizers()
    governed.create(seed)
    seed.has_gradient(1.0)

    governed.step(0)

    assert seed.weight.grad is None


def test_a_lease_bounds_the_steps_and_what_falls_outside_is_dropped_and_counted() -> None:
    seed, governed = Seedling(), optimizers()
    governed.create(seed)
    lease = command(Kind.OPTIMIZER_COMMAND_STEP, expected_step=12, num_steps=2)
    assert governed.apply(lease, 10, {"s0": seed}).status == APPLIED

    moved = []
    for step in range(10, 16):
        before = seed.weight.detach().clone()
        seed.has_gradient(1.0)
        governed.step(step)
        moved.append(not torch.equal(before, seed.weight))

    assert moved == [False, False, True, True, False, False]
    assert governed.left_out("s0") == {"steps_dropped": 4}
    assert seed.weight.grad is None


def test_a_lease_without_first_step_begins_at_the_effective_step_and_zero_steps_mean_unbounded() -> None:
    seed, governed = Seedling(), optimizers()
    governed.create(seed)
    granted = {7: command(Kind.OPTIMIZER_COMMAND_STEP, num_steps=1), 9: command(Kind.OPTIMIZER_COMMAND_STEP)}

    for step in (7, 8, 9, 1000):
        if step in granted:
            governed.apply(granted[step], step, {"s0": seed})
        seed.has_gradient(1.0)
        governed.step(step)

    assert governed.left_out("s0") == {"steps_dropped": 1}


def test_a_lease_that_is_over_before_it_begins_is_refused() -> None:
    seed, governed = Seedling(), optimizers()
    governed.create(seed)

    outcome = governed.apply(command(Kind.OPTIMIZER_COMMAND_STEP, expected_step=3, num_steps=2), 9, {"s0": seed})

    assert refusal(outcome)[0] == pb.ReasonCode.REASON_UNEXPECTED_STEP
    assert "[3, 5)" in outcome.detail


def test_a_lease_clips_the_gradient_norm() -> None:
    clipped, reference = Seedling(), Seedling()
    governed, plain = optimizers(), optimizers()
    governed.create(clipped, eps=1.0)
    plain.create(reference, eps=1.0)
    governed.apply(command(Kind.OPTIMIZER_COMMAND_STEP, grad_clip_norm=1.0), 0, {"s0": clipped})

    clipped.has_gradient(10.0)  # norm 20: every element becomes 0.5
    reference.has_gradient(0.5)
    governed.step(0)
    plain.step(0)

    assert torch.allclose(clipped.weight, reference.weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_skips_the_step_and_leaves_the_neighbour_alone(bad: float) -> None:
    sick, well = Seedling("sick"), Seedling("well")
    governed = optimizers()
    governed.create(sick)
    governed.create(well)
    well.has_gradient(1.0)
    sick.has_gradient(1.0)
    assert sick.weight.grad is not None
    sick.weight.grad[1, 1] = bad

    governed.step(0)

    assert torch.equal(sick.weight, torch.ones(2, 2))
    assert not torch.equal(well.weight, torch.ones(2, 2))
    assert (governed.left_out("sick"), governed.left_out("well")) == ({"steps_non_finite": 1}, {})


def test_an_unknown_hyperparameter_is_refused_with_what_is_known() -> None:
    reason, detail = refusal(optimizers().adjust(adjustment("host", beta1=0.5)))

    assert reason == pb.ReasonCode.REASON_UNKNOWN_PARAMETER
    assert "'beta1'" in detail
    assert "momentum" in detail


def test_an_unknown_optimizer_is_refused_with_what_is_known() -> None:
    seed, governed = Seedling(), optimizers()
    governed.create(seed)

    outcomes = [
        governed.adjust(adjustment("s7", lr=1.0)),
        governed.apply(command(Kind.OPTIMIZER_COMMAND_STEP, "s7"), 0, {"s0": seed}),
        governed.apply(command(Kind.OPTIMIZER_COMMAND_RESET_STATE, "s7"), 0, {"s0": seed}),
    ]

    for outcome in outcomes:
        reason, detail = refusal(outcome)
        assert reason == pb.ReasonCode.REASON_UNKNOWN_OPTIMIZER
        assert "'s7'" in detail
        assert "host, s0" in detail


def test_an_optimizer_for_an_unknown_seed_is_refused() -> None:
    reason, detail = refusal(optimizers().apply(create(), 0, {"s3": Seedling("s3")}))

    assert reason == pb.ReasonCode.REASON_UNKNOWN_SEED
    assert "'s0'" in detail
    assert "s3" in detail


def test_a_teacher_is_registered_by_digest_where_there_is_one_and_refused_elsewhere() -> None:
    asked: list[tuple[str, int]] = []

    def register(digest: str, step: int) -> str:
        asked.append((digest, step))
        return "registered"

    able = Optimizers(host()[1], reduce=SeedReducer(), around=Surroundings(register_teacher=register))
    teach = pb.OptimizerCommand(command_type=Kind.OPTIMIZER_COMMAND_REGISTER_TEACHER, teacher_digest="ab" * 32)

    outcomes = [able.apply(teach, 7, {}), optimizers().apply(teach, 7, {})]

    assert asked == [("ab" * 32, 7)]
    assert (outcomes[0].status, outcomes[0].detail) == (APPLIED, "registered")
    assert refusal(outcomes[1]) == (
        pb.ReasonCode.REASON_NOT_SUPPORTED,
        f"no teacher can be registered here ({'ab' * 32})",
    )


def test_generations_count_rebuilds_and_a_command_for_another_one_is_refused() -> None:
    seed, governed = Seedling(), optimizers()
    seeds = {"s0": seed}
    governed.apply(create(), 0, seeds)
    governed.apply(command(Kind.OPTIMIZER_COMMAND_RESET_STATE), 0, seeds)
    governed.apply(command(Kind.OPTIMIZER_COMMAND_INITIALIZE_HOST, "host"), 0, seeds)

    stale = governed.apply(command(Kind.OPTIMIZER_COMMAND_STEP, optimizer_generation=1), 0, seeds)
    good = governed.apply(command(Kind.OPTIMIZER_COMMAND_STEP, optimizer_generation=2), 0, seeds)

    assert governed.generations == {"host": 2, "s0": 2}
    assert refusal(stale)[0] == pb.ReasonCode.REASON_WRONG_GENERATION
    assert good.status == APPLIED


def test_a_dropped_optimizer_goes_on_counting_generations_when_it_comes_back() -> None:
    seed, governed = Seedling(), optimizers()
    governed.create(seed)

    governed.drop("s0")
    gone = dict(governed.generations)
    governed.create(seed)

    assert gone == {"host": 1}
    assert governed.generations["s0"] == 2


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
def test_reset_state_makes_the_host_step_as_if_it_had_just_been_built(kind: type[torch.optim.Optimizer]) -> None:
    model, _ = host()
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    optimizer = kind(model.parameters(), lr=0.1, **options)  # type: ignore[call-arg, arg-type]
    governed = optimizers(optimizer)
    for _ in range(3):
        step_host(model, optimizer)
    twin = torch.nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    fresh = kind(twin.parameters(), lr=0.1, **options)  # type: ignore[call-arg, arg-type]

    governed.apply(command(Kind.OPTIMIZER_COMMAND_RESET_STATE, "host"), 0, {})
    step_host(model, optimizer)
    step_host(twin, fresh)

    assert torch.equal(model.weight, twin.weight)


def test_initialize_host_adopts_the_optimizer_and_refuses_what_its_groups_lack() -> None:
    _, optimizer = host()
    governed = optimizers(optimizer)
    adopt = command(Kind.OPTIMIZER_COMMAND_INITIALIZE_HOST, "host")
    adopt.hyperparameters["lr"] = 0.3
    wrong = command(Kind.OPTIMIZER_COMMAND_INITIALIZE_HOST, "host")
    wrong.hyperparameters["beta2"] = 0.3

    outcomes = [governed.apply(adopt, 0, {}), governed.apply(wrong, 0, {})]

    assert [outcome.status for outcome in outcomes] == [APPLIED, FAILED]
    assert optimizer.param_groups[0]["lr"] == 0.3
    assert governed.generations == {"host": 2}


def test_a_fossil_gets_a_group_of_its_own_and_is_announced() -> None:
    _, optimizer = host()
    announced: list[torch.nn.Parameter] = []
    governed = Optimizers(optimizer, reduce=SeedReducer(), around=Surroundings(announce=announced.extend))
    fossil = Seedling().weight

    governed.add_to_host([fossil])

    assert optimizer.param_groups[1]["params"] == [fossil]
    assert optimizer.param_groups[1]["lr"] == 0.1
    assert announced == [fossil]


def test_a_fossil_does_not_break_a_scheduler_that_counts_the_groups() -> None:
    _, optimizer = host()
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
    governed, fossil = optimizers(optimizer), Seedling()

    governed.add_to_host([fossil.weight])
    fossil.has_gradient(1.0)
    optimizer.step()
    scheduler.step()

    assert not torch.equal(fossil.weight, torch.ones(2, 2))
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_gradients_are_unscaled_by_the_scale_of_their_backward_and_dropped_on_a_skipped_step() -> None:
    model, optimizer = host()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
    governed, seed = Optimizers(optimizer, reduce=SeedReducer(), scaler=scaler), Seedling()
    governed.create(seed)
    seen: list[torch.Tensor | None] = []

    def after_step(*_: object) -> None:
        governed.reduce({"s0": seed})
        seen.append(seed.weight.grad)

    optimizer.register_step_post_hook(after_step)
    scaler.scale(model(torch.ones(1, 3)).sum() + seed.weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()

    assert seen[0] is not None
    assert torch.equal(seen[0], torch.ones(2, 2))
    assert scaler.get_scale() == 16.0

    assert model.bias.grad is not None
    model.bias.grad.fill_(float("inf"))
    seed.has_gradient(16.0)
    scaler.unscale_(optimizer)
    governed.reduce({"s0": seed})  # as the post-step hook of a fused optimizer does, on a skipped step too

    assert seed.weight.grad is None
