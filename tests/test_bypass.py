"""Sites that were gone past, told from sites that a step left out while older gradients lie there."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from esper.errors import TrainingError
from esper.session import Session
from tests.seed_kit import Bypassing, Host, Op, batch, loss_of, new_host, optimizer_of
from tests.session_kit import backward, on_seed, order, own_optimizer, unsteered


class Choosing(Bypassing):
    """Calls its head, reads its weight without calling it, or leaves it out."""

    way = "calls"

    def forward(self, x: Tensor) -> Tensor:
        match self.way:
            case "calls":
                return Host.forward(self, x)
            case "goes past":
                return super().forward(x)
        y: Tensor = self.act(self.body(x))[:, :3]
        return y


def choosing() -> Choosing:
    host = new_host(Choosing)
    assert isinstance(host, Choosing)
    return host


def begun(host: Choosing) -> Session:
    """After the first step, at whose end no gradient is left."""
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head")
    step(run, host, "calls", updates=True)
    return run


def step(run: Session, host: Choosing, way: str, *, updates: bool = False, zeroes: bool = True) -> None:
    with run.step():
        host.way = way
        backward(host, run.step_number)
        if updates:
            run.optimizer.step()
            if zeroes:
                run.optimizer.zero_grad()


def germinate(run: Session) -> None:
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="head", blueprint_id="mlp"))


def hooked(host: nn.Module) -> bool:
    return any(parameter._post_accumulate_grad_hooks for parameter in host.parameters())


def test_a_seed_that_comes_amid_accumulated_gradients_may_be_left_out_of_a_step() -> None:
    host = choosing()
    run = begun(host)
    step(run, host, "calls")
    germinate(run)

    for _ in range(3):
        step(run, host, "leaves out")
        step(run, host, "leaves out", updates=True, zeroes=False)

    assert run.step_number == 9
    assert run.executor.seeds["s0"].site == "head"


@pytest.mark.parametrize("accumulates", [False, True])
def test_a_site_that_was_gone_past_is_named_in_the_second_step_of_its_seed(accumulates: bool) -> None:
    host = choosing()
    run = begun(host)
    step(run, host, "calls", updates=not accumulates)
    germinate(run)
    step(run, host, "goes past", updates=True)

    with pytest.raises(TrainingError, match="step 4: no slot fired at head"):
        step(run, host, "goes past", updates=True)


def test_a_forward_that_ran_before_its_step_has_gone_past_nothing() -> None:
    """As of a generator whose images its critic was shown first, or of a policy that has acted."""
    host = choosing()
    run = begun(host)
    germination = on_seed(Op.SEED_OP_GERMINATE, site="head", blueprint_id="mlp")
    order(run, germination, own_optimizer("s0", 0.01), on_seed(Op.SEED_OP_START_TRAINING))

    for number in range(2, 6):
        loss = loss_of(host(batch(number)[0]), batch(number)[1]).mean()
        with run.step():
            torch.autograd.backward(loss)
            run.optimizer.step()
            run.optimizer.zero_grad()

    assert run.step_number == 6
    assert run.executor.seeds["s0"].meter.fits.total == 3  # all but the one whose forward ran before it came


def test_gradients_that_nobody_clears_prove_nothing_of_a_step_that_leaves_their_site_out() -> None:
    host = choosing()
    run = begun(host)
    germinate(run)

    for _ in range(3):  # as of parameters that another optimizer clears, now and then
        step(run, host, "calls", updates=True, zeroes=False)
        step(run, host, "leaves out", updates=True, zeroes=False)

    assert run.step_number == 8


def test_a_site_gone_past_since_its_gradients_stay_is_named_in_the_second_such_step() -> None:
    host = choosing()
    run = begun(host)
    germinate(run)
    step(run, host, "calls", updates=True, zeroes=False)
    step(run, host, "goes past", updates=True, zeroes=False)

    with pytest.raises(TrainingError, match="step 4: no slot fired at head"):
        step(run, host, "goes past", updates=True)


def test_what_is_written_before_one_step_of_an_optimizer_proves_nothing_of_the_next() -> None:
    host = choosing()
    run = begun(host)
    step(run, host, "calls")
    germinate(run)

    with run.step():
        for host.way in ("calls", "leaves out"):
            backward(host, 3)
            run.optimizer.step()

    assert hooked(host)
    assert run.step_number == 4


def test_a_site_that_rests_again_leaves_no_hook_on_its_parameters() -> None:
    host = choosing()
    run = begun(host)
    step(run, host, "calls")
    germinate(run)
    step(run, host, "leaves out", updates=True)
    watched = hooked(host)
    order(run, on_seed(Op.SEED_OP_CULL))

    step(run, host, "calls", updates=True)

    assert watched and not hooked(host)


def test_what_lies_at_a_site_before_the_first_step_proves_nothing_of_it() -> None:
    host = choosing()
    backward(host, 1)
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head")

    step(run, host, "leaves out", updates=True)

    assert run.step_number == 2


def test_a_host_whose_gradients_are_of_a_copy_is_told_so_in_the_first_step() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    copied = deepcopy(host)
    backward(copied, 1)

    with pytest.raises(TrainingError, match=r"fired at body .* a copy of the model .*: leave it out of the sites"):
        step_by(run, host, copied)


def step_by(run: Session, host: Host, copied: Host) -> None:
    """A step by gradients that were found in a copy."""
    with run.step():
        for mine, its in zip(host.parameters(), copied.parameters(), strict=True):
            mine.grad = its.grad
        run.optimizer.step()


PENALTIES = {
    "L2": lambda weights: sum(each.square().sum() for each in weights),
    "L1": lambda weights: sum(each.abs().sum() for each in weights),
    "both": lambda weights: sum(each.square().sum() + 0.1 * each.abs().sum() for each in weights),
    "norm": lambda weights: torch.cat([each.flatten() for each in weights]).norm(),
}


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_penalty_on_all_weights_proves_nothing_of_a_site_that_is_left_out(penalty: str, optimizer: str) -> None:
    host = choosing()
    run = unsteered(host, optimizer_of(optimizer, list(host.parameters())), "body", "head")

    for host.way in ("leaves out", "calls", "leaves out", "leaves out"):
        step_penalised(run, host, PENALTIES[penalty])
    germinate(run)
    for host.way in ("leaves out", "calls", "leaves out", "leaves out"):
        step_penalised(run, host, PENALTIES[penalty])

    host.way = "goes past"
    with pytest.raises(TrainingError, match="step 9: no slot fired at head"):
        step_penalised(run, host, PENALTIES[penalty])


def step_penalised(run: Session, host: Host, penalty: Callable[[list[nn.Parameter]], Tensor]) -> None:
    x, y = batch(run.step_number)
    with run.step():
        torch.autograd.backward(loss_of(host(x), y).mean() + 0.01 * penalty([*host.parameters()]))
        run.optimizer.step()
        run.optimizer.zero_grad()
