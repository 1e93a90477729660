"""Which optimizer owns which parameter, by qualified name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from esper.errors import RefusedError
from esper.leyline import contracts as pb

Named = Iterable[tuple[str, torch.Tensor]]
Source = Callable[[], Named]

HOST, TEACHER = "host", "teacher"


class Owners:
    """A name belongs to one optimizer at most; a teacher's to none.

    Tensors are looked up in the live modules, never remembered: after a reload, a `.to()` or a collection an identity
    says nothing. Names are the model's own, `seed:<id>.<name>` and `teacher:<name>`.
    """

    def __init__(self, model: Source, teacher: Source) -> None:
        self._model = model
        self._teacher = teacher
        self._seeds: dict[str, Source] = {}
        self._owned: dict[str, str] = {}

    def owns(self, optimizer_id: str) -> tuple[str, ...]:
        """Qualified names of the parameters that this optimizer steps."""
        return tuple(name for name, owner in self._owned.items() if owner == optimizer_id)

    def owner_of(self, parameter: torch.Tensor | str) -> str:
        """The optimizer that steps it; `teacher` for a teacher's, empty where it is registered nowhere."""
        name = parameter if isinstance(parameter, str) else self.name_of(parameter)
        return TEACHER if name.startswith(f"{TEACHER}:") else self._owned.get(name, "")

    def name_of(self, parameter: torch.Tensor) -> str:
        """Its qualified name in the live modules; empty where it is in none."""
        return next((name for name, tensor in self._everything() if tensor is parameter), "")

    def claim_seed(self, seed_id: str, source: Source) -> None:
        """A seed's optimizer takes its parameters; RefusedError, and nothing changed, where one is not its own."""

        def named() -> Named:
            return [(f"seed:{seed_id}.{name}", tensor) for name, tensor in source()]

        self.require_free(seed_id, source())
        self.release(seed_id)
        self._seeds[seed_id] = named
        self._owned |= {name: seed_id for name, _ in named()}

    def require_free(self, seed_id: str, named: Named) -> None:
        """RefusedError for the first of these parameters that stands in another module too."""
        prefix = f"seed:{seed_id}."
        others = {tensor: name for name, tensor in self._everything() if not name.startswith(prefix)}
        for name, tensor in named:
            if (other := others.get(tensor)) is not None:
                raise _taken(prefix + name, other, self.owner_of(other), seed_id)

    def claim_host(self, parameters: Iterable[torch.Tensor], *, strict: bool = True) -> None:
        """The host's optimizer takes these, and only these. RefusedError, and nothing changed, for others' parameters.

        Where `strict`, one that no module registers is refused too; else it is left out: it may be a loss function's.
        """
        known = {tensor: name for name, tensor in self._everything()}
        names = [known.get(parameter, "") for parameter in parameters]
        for number, name in enumerate(names):
            if (owner := self.owner_of(name)) not in ("", HOST):
                raise _taken(name, name, owner, HOST)
            if strict and not name:
                detail = f"parameter {number} of optimizer {HOST!r} is registered in no module; expected the model's"
                raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_PARAMETER, detail)
        self.release(HOST)
        self._owned |= {name: HOST for name in names if name}

    def release(self, optimizer_id: str) -> None:
        """Its names are free; where it was a seed's optimizer, its module is no longer looked at."""
        self._seeds.pop(optimizer_id, None)
        self._owned = {name: owner for name, owner in self._owned.items() if owner != optimizer_id}

    def _everything(self) -> Iterable[tuple[str, torch.Tensor]]:
        for seed in self._seeds.values():
            yield from seed()
        yield from ((f"{TEACHER}:{name}", tensor) for name, tensor in self._teacher())
        yield from self._model()


def _taken(name: str, other: str, owner: str, claimant: str) -> RefusedError:
    same = f"parameter {name!r}" if name == other else f"parameter {name!r} is {other!r}, which"
    held = f"belongs to {owner!r}" if owner else "is registered with no optimizer"
    detail = f"{same} {held}; optimizer {claimant!r} can't step it too"
    return RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, detail)
