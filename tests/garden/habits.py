"""What a script does beside its training: hooks of its own, copies, casts, parameters frozen, swapped or loaded."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from tests.garden.besides import ASKING
from tests.garden.newest import GROWING

if TYPE_CHECKING:
    from tests.garden.loops import Loop

FIRST_SEED = 24_000
"""Lives before this one were drawn when no script had a habit, and are kept as they were."""


@dataclass(frozen=True)
class Habits:
    """Of one script."""

    penalty: bool = False  # of the gradient's norm: a backward through a backward
    distils: bool = False  # from a frozen host of its kind
    backwards: bool = False  # twice through one graph
    second: bool = False  # an optimizer of its own for the last parameter
    own_host: bool = False  # leases govern the host's optimizer too
    attaches_again: bool = False
    meddles: float = 0.0  # share of steps in which it does one of MEDDLING
    salt: int = 0  # decides in which
    grows: bool = False  # it meddles with GROWING too
    asks: bool = False  # and with ASKING

    @classmethod
    def draw(cls, dice: Random) -> Habits:
        flags = {each: dice.random() < 0.15 for each in FLAGS}
        return cls(meddles=dice.choice([0.0, 0.1, 0.3]), salt=dice.randrange(10**6), **flags)

    @property
    def is_forgetful(self) -> bool:
        """Whether the script holds what neither a rollback nor a checkpoint puts back."""
        return self.second or bool(self.meddles)

    def meddle(self, loop: Loop, number: int) -> None:
        """Before the forward of the step with this batch."""
        dice = Random(f"{self.salt} {number}")
        if dice.random() < self.meddles:
            ways = {**MEDDLING, **(GROWING if self.grows else {}), **(ASKING if self.asks else {})}
            ways[dice.choice([*ways])](loop, dice)


class Users:
    """A hook of the script's own: it scales what it is given."""

    def __call__(self, module: nn.Module, *given: Any) -> Any:
        value = given[-1]
        if isinstance(value, Tensor):
            return value * 0.75
        return tuple(each * 0.75 if _is_real(each) else each for each in value) if type(value) is tuple else None


class UsersOfBackward(Users):
    def __call__(self, module: nn.Module, *given: Any) -> Any:
        return super().__call__(module, given[0])


class UsersOfGradient(Users):
    def __call__(self, *given: Any) -> Any:
        return given[0] * 0.75


def _is_real(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def hook(loop: Loop, dice: Random) -> None:
    """On a site or any other module, or on a parameter; for good."""
    owners = [loop.host.get_submodule(name) for name in loop.kind.sites] + [*loop.host.modules()]
    module = dice.choice(owners)
    kinds = ["before", "first", "last", "gradient"]
    if not loop.kind.in_place:
        kinds += ["backward", "backward first"]
    match dice.choice(kinds):
        case "before":
            module.register_forward_pre_hook(Users())
        case "first":
            module.register_forward_hook(Users(), prepend=True)
        case "last":
            module.register_forward_hook(Users())
        case "backward" | "backward first" if loop.kind.sparse:
            return
        case "backward":
            module.register_full_backward_hook(UsersOfBackward())
        case "backward first":
            module.register_full_backward_pre_hook(Users())
        case "gradient":
            learn = [each for each in loop.host.parameters() if each.requires_grad]
            if learn:
                dice.choice(learn).register_hook(UsersOfGradient())  # type: ignore[no-untyped-call]


def swap(loop: Loop, dice: Random) -> None:
    parameter = dice.choice([*loop.host.parameters()])
    parameter.data = parameter.data.clone() * 0.99


def flatten(loop: Loop, dice: Random) -> None:
    """All in one vector, as its views."""
    parameters = [*loop.host.parameters()]
    if len({each.dtype for each in parameters}) == 1:
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(parameters).detach(), parameters)


def freeze(loop: Loop, dice: Random) -> None:
    """A parameter, or no more."""
    parameter = dice.choice(_own(loop))
    parameter.requires_grad_(not parameter.requires_grad)
    if not any(each.requires_grad for each in _own(loop)):
        parameter.requires_grad_(True)


def freeze_one(loop: Loop, dice: Random) -> None:
    """A whole module with its gradients."""
    module = loop.host.get_submodule(dice.choice(loop.kind.sites))
    for parameter in module.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
    if not any(each.requires_grad for each in _own(loop)):
        loop.host.requires_grad_(True)


def assign(loop: Loop, dice: Random) -> None:
    """Other parameters under the same names, which the optimizers are told of with what they remember."""
    old = dict(loop.host.named_parameters())
    if len(old) < sum(1 for _ in loop.host.named_parameters(remove_duplicate=False)):
        return  # what two layers share would be two parameters
    kept = {name: each.requires_grad for name, each in old.items()}
    loop.host.load_state_dict({n: e.clone() for n, e in loop.host.state_dict().items()}, assign=True)
    new = dict(loop.host.named_parameters())
    for name, each in new.items():
        each.requires_grad_(kept[name])
    for optimizer in filter(None, (loop.optimizer, loop.second)):
        for group in optimizer.param_groups:
            names = {id(each): name for name, each in old.items()}
            group["params"][:] = [new[names[id(each)]] for each in group["params"]]
        for name, each in old.items():
            if each in optimizer.state:
                optimizer.state[new[name]] = optimizer.state.pop(each)
    loop.num_casts += 1


def load(loop: Loop, dice: Random) -> None:
    """Weights from elsewhere; assigned, or copied into those that are there."""
    state = {name: each.detach().clone() for name, each in loop.host.state_dict().items()}
    for name, each in state.items():
        if each.is_floating_point():
            state[name] = each * 0.9
    loop.host.load_state_dict(state)


def reload(loop: Loop, dice: Random) -> None:
    """The optimizer from its own state, as after a pause of the script."""
    loop.optimizer.load_state_dict(copy.deepcopy(loop.optimizer.state_dict()))
    if any(each.dtype != torch.float32 for each in loop.host.parameters()):
        loop.num_casts += 1  # torch casts what was made in the default precision


def cast(loop: Loop, dice: Random) -> None:
    """To double precision, or back."""
    is_double = any(each.dtype == torch.float64 for each in loop.host.parameters())
    loop.host.to(torch.float32 if is_double else torch.float64)
    for parameter in loop.host.parameters():
        parameter.grad = None
    loop.num_casts += 1
    reload(loop, dice)
    if loop.second is not None:
        loop.second.load_state_dict(copy.deepcopy(loop.second.state_dict()))


def average(loop: Loop, dice: Random) -> None:
    """A copy of the host, asked something."""
    other = copy.deepcopy(loop.host)
    _ask(loop, other)


def pickled(loop: Loop, dice: Random) -> None:
    """The host whole, to bytes and back; torch has no pickle of what is parametrized."""
    if any(is_parametrized(each) for each in loop.host.modules()):
        return
    buffer = io.BytesIO()
    torch.save(loop.host, buffer)
    buffer.seek(0)
    _ask(loop, torch.load(buffer, weights_only=False))


def call(loop: Loop, dice: Random) -> None:
    """The host as a function of other parameters; torch leaves those in a module that goes by two names."""
    if len([*loop.host.named_modules(remove_duplicate=False)]) != len([*loop.host.named_modules()]):
        return
    given = {name: each.detach() * 0.5 for name, each in loop.host.named_parameters()}
    with torch.no_grad():
        answer = torch.func.functional_call(loop.host, given, (loop.batch(-5),))
    loop.outputs.append(loop.first(answer).clone())


def evaluate(loop: Loop, dice: Random) -> None:
    """In training mode, without a gradient."""
    with torch.no_grad():
        loop.outputs.append(loop.first(loop.host(loop.batch(-6))).clone())


def look(loop: Loop, dice: Random) -> None:
    """At gradients, without keeping any."""
    if loop.kind.accumulates:
        return
    learn = [each for each in loop.host.parameters() if each.requires_grad]
    total = loop.first(loop.host(loop.batch(-7))).square().mean()
    found = torch.autograd.grad(total, learn, allow_unused=True) if total.requires_grad else ()
    loop.outputs += [each.clone() for each in found if each is not None]


def still(loop: Loop, dice: Random) -> None:
    """A site in evaluation from here on, or no more."""
    module = loop.host.get_submodule(dice.choice(loop.kind.sites))
    module.train(not module.training)


def regroup(loop: Loop, dice: Random) -> None:
    """The last parameter of a group gets one of its own."""
    groups = loop.optimizer.param_groups
    if loop.scheduler is None and loop.manner.optimizer != "lbfgs" and len(groups[0]["params"]) > 1:
        parameter, names = groups[0]["params"].pop(), groups[0].get("param_names")
        given = [parameter] if names is None else [(names.pop(), parameter)]
        loop.optimizer.add_param_group({"params": given, "lr": groups[0]["lr"] * 0.5})
        loop.num_casts += 1


def _ask(loop: Loop, host: nn.Module) -> None:
    host.eval()
    with torch.no_grad():
        loop.outputs.append(loop.first(host(loop.batch(-4))).clone())


def _own(loop: Loop) -> list[nn.Parameter]:
    """The parameters that the script knows, and no fossil's."""
    return [each for name, each in loop.host.named_parameters() if "seed_" not in name]


FLAGS = ("penalty", "distils", "backwards", "second", "own_host", "attaches_again")
MEDDLING: Mapping[str, Callable[[Loop, Random], None]] = {
    each.__name__: each
    for each in (
        hook,
        swap,
        flatten,
        freeze,
        freeze_one,
        assign,
        load,
        reload,
        cast,
        average,
        pickled,
        call,
        evaluate,
        look,
        still,
        regroup,
    )
}
