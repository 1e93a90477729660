"""Who owns which parameter is told by name, and nobody steps what belongs to somebody else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from esper.errors import RefusedError
from tests.optimizer_kit import APPLIED, Host, Kind, Reason, Sprout, command, create, governed, refusal, start
from tests.seed_kit import Op, new_host
from tests.session_kit import on_seed, order, train, unsteered


class Borrower(Sprout):
    """A seed that holds a parameter which is not its own."""

    def __init__(self, borrowed: torch.Tensor, seed_id: str = "thief") -> None:
        super().__init__(seed_id, ((2,),))
        assert isinstance(borrowed, nn.Parameter)
        self.parameters.append(borrowed)


def test_names_say_who_owns_what() -> None:
    host, seed = Host(), Sprout()
    optimizers = governed(host, torch.optim.SGD(host.body.parameters(), lr=0.1))
    optimizers.create(seed)

    assert optimizers.owns("host") == ("body.weight", "body.bias")
    assert optimizers.owns("s0") == ("seed:s0.p0", "seed:s0.p1", "seed:s0.p2")
    assert optimizers.owner_of(host.body.weight) == "host"
    assert optimizers.owner_of(seed.parameters[1]) == "s0"
    assert optimizers.owner_of("seed:s0.p1") == "s0"
    assert optimizers.owner_of(host.head.weight) == ""  # frozen: in the model, with no optimizer
    assert optimizers.owner_of(torch.ones(2)) == ""


def test_ownership_follows_the_name_when_the_tensor_is_replaced() -> None:
    host, seed = Host(), Sprout()
    optimizers = governed(host, torch.optim.SGD(host.parameters(), lr=0.1))
    optimizers.create(seed)
    old = seed.parameters[0]

    seed.parameters[0] = nn.Parameter(old.detach().clone())

    assert (optimizers.owner_of(seed.parameters[0]), optimizers.owner_of(old)) == ("s0", "")


@pytest.mark.parametrize(
    ("whose", "said"),
    [
        (
            "host",
            "parameter 'seed:thief.p1' is 'body.weight', which belongs to 'host'; optimizer 'thief' can't step it",
        ),
        ("frozen", "parameter 'seed:thief.p1' is 'head.bias', which is registered with no optimizer"),
        ("seed", "parameter 'seed:thief.p1' is 'seed:s0.p0', which belongs to 's0'"),
        ("teacher", "parameter 'seed:thief.p1' is 'teacher:w', which belongs to 'teacher'"),
    ],
)
def test_a_seed_with_a_parameter_of_somebody_else_gets_no_optimizer(whose: str, said: str) -> None:
    host, seed, [taught] = Host(), Sprout(), start("t", ((2,),))
    optimizers = governed(host, torch.optim.SGD(host.body.parameters(), lr=0.1), teacher=lambda: [("w", taught)])
    optimizers.create(seed)
    borrowed = {"host": host.body.weight, "frozen": host.head.bias, "seed": seed.parameters[0], "teacher": taught}
    thief = Borrower(borrowed[whose])
    owned = {name: optimizers.owns(name) for name in ("host", "s0")}

    reason, detail = refusal(optimizers.apply(create("thief"), 0, {"thief": thief}))

    assert reason == Reason.REASON_NOT_SUPPORTED
    assert detail.startswith(said)
    assert not optimizers.has("thief")
    assert {name: optimizers.owns(name) for name in ("host", "s0")} == owned


@pytest.mark.parametrize("whose", ["seed", "teacher", "nobody"])
def test_a_host_is_not_initialised_with_what_is_not_its_own(whose: str) -> None:
    host, seed, [taught, stray] = Host(), Sprout(), start("t", ((2,), (3,)))
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
    optimizers = governed(host, optimizer, teacher=lambda: [("w", taught)])
    optimizers.create(seed)
    optimizer.add_param_group({"params": {"seed": seed.parameters[2], "teacher": taught, "nobody": stray}[whose]})
    adopt = command(Kind.OPTIMIZER_COMMAND_INITIALIZE_HOST, "host", hyperparameters={"lr": 0.5})

    _, detail = refusal(optimizers.apply(adopt, 0, {}))

    expected = {"seed": "'seed:s0.p2' belongs to 's0'", "teacher": "'teacher:w' belongs to 'teacher'"}
    assert expected.get(whose, "parameter 4 of optimizer 'host' is registered in no module") in detail
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.1]
    assert optimizers.generations["host"] == 1


def test_a_loss_function_with_parameters_of_its_own_does_not_keep_a_model_from_being_steered() -> None:
    host, [temperature] = Host(), start("t", ((1,),))

    optimizers = governed(host, torch.optim.SGD([*host.parameters(), temperature], lr=0.1))

    assert optimizers.owner_of(temperature) == ""
    assert optimizers.owns("host") == ("body.weight", "body.bias", "head.weight", "head.bias")


def test_a_seed_that_holds_a_host_parameter_stays_germinated_and_the_host_trains_on() -> None:
    host = new_host()
    run = unsteered(host, torch.optim.SGD(host.parameters(), lr=0.1), "body")
    train(run, host, 1)
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"))
    train(run, host, 1)
    module = run.executor.seeds["s0"].module
    assert module is not None
    module.register_parameter("borrowed", host.head.bias)

    order(run, on_seed(Op.SEED_OP_START_TRAINING))
    before = host.head.bias.detach().clone()
    train(run, host, 2)

    boundary = run.exchange.boundary
    [receipt] = boundary._applied[boundary.round_applied].receipts
    assert receipt.detail.startswith("parameter 'seed:s0.borrowed' is 'head.bias', which belongs to 'host'")
    assert not run.optimizers.has("s0")
    assert not torch.equal(host.head.bias, before)


def test_a_dropped_seed_owns_nothing_and_may_be_created_again() -> None:
    host, seed = Host(), Sprout()
    optimizers = governed(host, torch.optim.SGD(host.parameters(), lr=0.1))
    optimizers.create(seed)

    optimizers.drop("s0")

    assert optimizers.owns("s0") == ()
    assert optimizers.owner_of(seed.parameters[0]) == ""
    assert optimizers.apply(create(), 0, {"s0": seed}).status == APPLIED


def test_a_parameter_of_another_seed_is_free_again_once_that_seed_is_gone() -> None:
    host, seed = Host(), Sprout()
    optimizers = governed(host, torch.optim.SGD(host.parameters(), lr=0.1))
    optimizers.create(seed)
    heir = Borrower(seed.parameters[0], "heir")
    with pytest.raises(RefusedError, match=r"'seed:heir\.p1' is 'seed:s0\.p0', which belongs to 's0'"):
        optimizers.create(heir)

    optimizers.drop("s0")
    optimizers.create(heir)

    assert optimizers.owner_of(seed.parameters[0]) == "heir"
