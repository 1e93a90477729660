"""What the optimizers remember, by names of parameters instead of the parameters themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch.utils._pytree import tree_map_only

from esper.errors import CheckpointError
from esper.kernels.split import is_split, own_part, placed
from esper.tolaria.optimizers import moments
from esper.tolaria.optimizers.host import KeptHost
from esper.tolaria.optimizers.moments import Moments
from esper.tolaria.optimizers.optimizers import KeptOptimizers, Optimizers
from esper.tolaria.optimizers.overrides import Group
from esper.tolaria.optimizers.seed_optimizer import KeptSeedOptimizer
from esper.tolaria.reduce import Trainee
from esper.tolaria.state.bank import Bank

Names = Mapping[str, torch.Tensor]


class OptimizerState:
    """Takes the state of a rank's optimizers apart and puts it back."""

    def __init__(self, optimizers: Optimizers, host: torch.optim.Optimizer, model: Callable[[], Names]) -> None:
        self._optimizers, self._host, self._model = optimizers, host, model

    def dump(self) -> dict[str, Any]:
        kept, names = self._optimizers.snapshot(Bank()), self._names()
        return {
            "class": type(self._host).__name__,
            "groups": [
                {"names": [names[each] for each in group["params"]], "settings": _settings(group)}
                for group in self._host.param_groups
            ],
            "host": {
                names[each]: tree_map_only(torch.Tensor, own_part, state)
                for each, state in zip(kept.host.parameters, kept.host.moments.states, strict=True)
            },
            "seeds": _as_data(kept.seeds),
            "frozen": [names[each] for each in self._optimizers.frozen.parameters if each in names],
            "standing": self._optimizers.standing(),
        }

    def seeds(self) -> dict[str, Any]:
        """Of the seeds alone: what an emergency checkpoint holds."""
        return _as_data(self._optimizers.snapshot_seeds(Bank()))

    def check(self, dumped: Mapping[str, Any], comes: set[str]) -> None:
        """Raise CheckpointError where the host's optimizer is another one; `comes` are names of fossils to be made."""
        if dumped["class"] != type(self._host).__name__:
            raise CheckpointError(f"its optimizer is {dumped['class']}; this one is {type(self._host).__name__}")
        here = {*self._names().values()}
        known = here | {*self._model()} | comes
        for name in dumped["host"]:
            if name not in known:
                raise CheckpointError(f"its optimizer steps {name!r}, which is no parameter here")

    def put_back(
        self, dumped: Mapping[str, Any], seeds: Mapping[str, Trainee], fossils: Collection[str], *, settings: bool
    ) -> None:
        """`settings`: also the groups' hyperparameters, leases and generations; a rollback leaves these as they are.

        It leaves to the script, too, which parameters its optimizer steps, but for those of `fossils`, by name. Of a
        new process nobody can tell: there all that the optimizer stepped are stepped again.
        """
        by_name = {name: each for each, name in self._names().items()}
        by_name |= self._model()
        kept = self._kept(dumped, by_name)
        stepped = self._stepped()
        comes = {name for name in dumped["host"] if by_name[name] not in stepped and (settings or name in fossils)}
        if comes:
            self._let_go(kept, seeds)
        for group in dumped["groups"]:
            joins = [by_name[name] for name in group["names"] if name in comes]
            self._optimizers.add_to_host([each for each in joins if isinstance(each, torch.nn.Parameter)])
        self._optimizers.restore(kept, seeds)
        frozen = [by_name[name] for name in dumped.get("frozen", ())]  # an older checkpoint does not say
        self._optimizers.frozen.freeze(each for each in frozen if isinstance(each, torch.nn.Parameter))
        if settings:
            self._set(dumped["groups"], by_name)
            self._optimizers.resume(dumped["standing"])

    def _stepped(self) -> set[torch.Tensor]:
        return {each for group in self._host.param_groups for each in group["params"]}

    def _let_go(self, kept: KeptOptimizers, seeds: Mapping[str, Trainee]) -> None:
        """Of fossils in whose place others were made."""
        stay = [place for place, each in enumerate(kept.host.parameters) if each in self._stepped()]
        moments = Moments([kept.host.moments.states[place] for place in stay])
        present = replace(kept.host, parameters=[kept.host.parameters[place] for place in stay], moments=moments)
        self._optimizers.restore(replace(kept, host=present), seeds)

    def _kept(self, dumped: Mapping[str, Any], by_name: Names) -> KeptOptimizers:
        counted = {name: group["settings"] for group in dumped["groups"] for name in group["names"]}
        states = [
            _split(_on(state, by_name[name].device, moments.counts_on_device(counted[name])), by_name[name])
            for name, state in dumped["host"].items()
        ]
        host = KeptHost([by_name[name] for name in dumped["host"]], Moments(states))
        beside = next((each.device for each in by_name.values()), torch.device("cpu"))
        return KeptOptimizers(host, {seed_id: _kept_seed(held, beside) for seed_id, held in dumped["seeds"].items()})

    def _set(self, groups: list[Mapping[str, Any]], by_name: Names) -> None:
        for saved in groups:
            for group in self._host.param_groups:
                if any(each is by_name[name] for name in saved["names"][:1] for each in group["params"]):
                    group.update(saved["settings"])

    def _names(self) -> dict[torch.Tensor, str]:
        """The model's names; what is no parameter of the model goes by its place in the groups."""
        placed = (
            (each, f"group {number}, parameter {place}")
            for number, group in enumerate(self._host.param_groups)
            for place, each in enumerate(group["params"])
        )
        return dict(placed) | {each: name for name, each in self._model().items()}


def _settings(group: Group) -> Group:
    return {name: value for name, value in group.items() if name not in ("params", "param_names")}


def _as_data(seeds: Mapping[str, KeptSeedOptimizer]) -> dict[str, Any]:
    return {
        seed_id: {each.name: getattr(held, each.name) for each in fields(held)} | {"moments": held.moments.states}
        for seed_id, held in seeds.items()
    }


def _kept_seed(held: Mapping[str, Any], device: torch.device) -> KeptSeedOptimizer:
    counts = moments.counts_on_device(held["hyperparameters"])
    return KeptSeedOptimizer(**{**held, "moments": Moments([_on(state, device, counts) for state in held["moments"]])})


def _on(state: Mapping[str, object], device: torch.device, counts: bool) -> dict[str, object]:
    """Moments beside their parameters, in lists too; a count of steps stays where torch keeps it, on the CPU unless
    `counts` says that a kernel counts there."""
    moved = tree_map_only(torch.Tensor, lambda each: each.to(device) if each.ndim or counts else each, dict(state))
    return cast(dict[str, object], moved)


def _split(state: dict[str, object], parameter: torch.Tensor) -> dict[str, object]:
    """Moments split as their parameter is, if it is: one that is whole may be yet without a shape."""
    if not is_split(parameter):
        return state
    shape = own_part(parameter).shape
    return cast(
        dict[str, object],
        tree_map_only(torch.Tensor, lambda each: placed(each, parameter) if each.shape == shape else each, state),
    )
