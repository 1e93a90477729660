"""The whole training state of one rank as plain data, and what is checked before any of it is put back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from esper.errors import CheckpointError
from esper.tolaria.checkpoints.optimizers import OptimizerState
from esper.tolaria.fossils import FossilGradients
from esper.tolaria.reduce import Trainee
from esper.tolaria.state.bank import copy_all
from esper.tolaria.state.randomness import Randomness
from esper.tolaria.state.sharded import parameters, shaped

MOST_NAMED = 5  # differences that an error lists

PutBack = Callable[[int, bool], None]
"""(Step before which the run stands, whether a new process resumes.)"""


class Stateful(Protocol):
    """A loader, a pruner, whatever else keeps state: data as of `pack`, and back."""

    def state_dict(self) -> Any: ...
    def load_state_dict(self, state: Any) -> Any: ...


class MadeSeeds(Protocol):
    """Seeds made from a checkpoint and found fit. Nothing has changed yet."""

    @property
    def fossil_names(self) -> Sequence[str]:
        """Of the tensors that the model will hold in fossils."""

    def put_back(self, step: int) -> None: ...


class DurableSeeds(Protocol):
    """Seeds as plain data."""

    @property
    def seeds(self) -> Mapping[str, Trainee]: ...
    def fossil_tensors(self) -> Sequence[torch.Tensor]: ...
    def dump(self) -> Any: ...
    def make(self, dumped: Any) -> MadeSeeds:
        """Raises CheckpointError, with nothing changed, where sites or blueprints differ."""


@dataclass
class RankState:
    """Everything that a checkpoint holds. `parts` follow a rollback.

    The loader does not, as data is not rewound, nor do the breakers, as what they have met is not undone.
    """

    model: torch.nn.Module
    optimizers: OptimizerState
    seeds: DurableSeeds
    fossils: FossilGradients
    loader: Stateful | None = None
    parts: Mapping[str, Stateful] = field(default_factory=dict)
    breakers: Stateful | None = None

    def dump(self) -> dict[str, Any]:
        return {
            "model": self._own_tensors(),
            "optimizers": self.optimizers.dump(),
            "seeds": self.seeds.dump(),
            "fossil_gradients": [name for name, each in self._named().items() if _among(each, self.fossils.adopted)],
            "randomness": Randomness.now().as_data(),
            "loader": None if self.loader is None else self.loader.state_dict(),
            "parts": {name: part.state_dict() for name, part in self.parts.items()},
            "breakers": None if self.breakers is None else self.breakers.state_dict(),
        }

    def dump_seeds(self) -> dict[str, Any]:
        """The small part, for an emergency."""
        return {"seeds": self.seeds.dump(), "optimizers": {"seeds": self.optimizers.seeds()}}

    def prepare(self, dumped: Mapping[str, Any]) -> PutBack:
        """What puts it back, once checked against this model. Raises CheckpointError with nothing changed."""
        try:
            _require_alike(dumped["model"], self._own_tensors(), self._named())
            seeds = self.seeds.make(dumped["seeds"])
            self.optimizers.check(dumped["optimizers"], set(seeds.fossil_names))
            if unknown := dumped["parts"].keys() - self.parts.keys():
                raise CheckpointError(f"it holds state of {', '.join(sorted(unknown))}, which is not here")
            Randomness(**dumped["randomness"])
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"its state is not that of a rank: {error!r}") from error

        def put_back(step: int, resumes: bool) -> None:
            self._put_back(dumped, seeds, step, resumes)

        return put_back

    def _put_back(self, dumped: Mapping[str, Any], seeds: MadeSeeds, step: int, resumes: bool) -> None:
        seeds.put_back(step)
        live, kept = self._own_tensors(), dumped["model"]
        copy_all(list(live.values()), [kept[name] for name in live])
        optimizers, trainees = dumped["optimizers"], self.seeds.seeds
        self.optimizers.put_back(optimizers, trainees, seeds.fossil_names, settings=resumes)
        named = self._named()
        self.fossils.release()
        self.fossils.adopt([each for name in dumped["fossil_gradients"] if isinstance(each := named[name], _Parameter)])
        for name, state in dumped["parts"].items():
            self.parts[name].load_state_dict(state)
        if resumes and self.loader is not None:
            self.loader.load_state_dict(dumped["loader"])
        if resumes and self.breakers is not None and (kept := dumped.get("breakers")):  # an older one has none
            self.breakers.load_state_dict(kept)  # behind the teacher, whose being taken closes its own
        Randomness(**dumped["randomness"]).put_back()  # last: nothing after it may draw

    def _named(self) -> dict[str, torch.Tensor]:
        return {**parameters(self.model), **dict(self.model.named_buffers())}

    def _own_tensors(self) -> dict[str, torch.Tensor]:
        """Without what fossils have brought, and what has no shape yet."""
        fossils = {id(each) for each in self.seeds.fossil_tensors()}
        return {name: each.detach() for name, each in shaped(self._named()).items() if id(each) not in fossils}


_Parameter = torch.nn.Parameter


def _among(tensor: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    return any(tensor is other for other in others)


def _require_alike(kept: Mapping[str, torch.Tensor], live: Mapping[str, torch.Tensor], named: Collection[str]) -> None:
    odd = [f"it lacks {name}" for name in live if name not in kept]
    absent = "is not in this model", "has no shape here: call the model once before attach()"
    odd += [f"it has {name}, which {absent[name in named]}" for name in kept if name not in live]
    for name in live:
        if name in kept and (_form(kept[name]) != _form(live[name])):
            odd.append(f"{name} is {_form(kept[name])} in it and {_form(live[name])} here")
    if odd:
        more = f"; {len(odd) - MOST_NAMED} more" if len(odd) > MOST_NAMED else ""
        raise CheckpointError(f"it is of another model: {'; '.join(odd[:MOST_NAMED])}{more}")


def _form(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
