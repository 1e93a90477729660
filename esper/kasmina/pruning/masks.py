"""The masks in force on a model: hooks that hold them in every forward, and weights that are zero where pruned."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from esper.errors import RefusedError
from esper.kasmina.pruning.bits import Zeros
from esper.kasmina.pruning.gates import Gate
from esper.kasmina.pruning.undo import Change
from esper.kasmina.pruning.units import CHANNEL, HEAD, LAYER, WEIGHT, Key, Unit, near
from esper.leyline import contracts as pb

Reason = pb.ReasonCode
NAMES: Mapping[int, str] = {CHANNEL: "channels", HEAD: "heads", LAYER: "layers", WEIGHT: "weights"}


class Masks:
    """One mask per unit that has anything pruned: bool, shape [num_channels], True where kept. Judges nothing.

    Parameters keep their names, their identity and their places in optimizers; only hooks come and go. Where the script
    gives a module others, these are held from the end of that step on.
    """

    def __init__(self, units: Mapping[Key, Unit]) -> None:
        self.units = dict(units)
        self._kept: dict[Key, Tensor] = {}
        self._gates: dict[Key, Gate] = {}
        self.held: tuple[list[Tensor], list[Tensor]] = ([], [])
        self._zeros = Zeros(*self.held)

    def now(self) -> dict[Key, Tensor]:
        """Copies of all masks in force."""
        return {key: kept.clone() for key, kept in self._kept.items()}

    def kept(self, key: Key) -> Tensor:
        """The mask of a unit; all True where it has none."""
        return self._kept.get(key, torch.ones(self.units[key].num_channels, dtype=torch.bool, device="cpu"))

    def prune(self, wanted: Mapping[Key, Tensor], change: Change) -> None:
        """Prune what these masks do not keep, besides what is pruned already; `change` keeps the weights."""
        for key, kept in wanted.items():
            before = self.kept(key)
            after = before & kept
            if not torch.equal(before, after):
                change.keep(self.units[key], before & ~after)
                self._set(key, after)
        self._settle()

    def put_back(self, masks: Mapping[Key, Tensor]) -> None:
        """Exactly these masks, whatever was in force."""
        for key in {*self._kept, *masks}:
            self._set(key, masks.get(key))
        self._settle()

    def hold(self) -> None:
        """Make pruned weights zero again: momentum and decay may just have moved them, or the script loaded others."""
        stale = [key for key, gate in self._gates.items() if not gate.fits()]
        for key in stale:
            self._gates.pop(key).remove()
            self._gates[key] = Gate(self.units[key], self._kept[key])
        if stale:
            self._pair()
        self._zeros.write()

    def num_pruned(self) -> int:
        """Channels, heads, layers and single weights, of all units."""
        return sum(int((~kept).sum()) for kept in self._kept.values())

    def _set(self, key: Key, kept: Tensor | None) -> None:
        if kept is None or bool(kept.all()):
            self._kept.pop(key, None)
            if gate := self._gates.pop(key, None):
                gate.remove()
            return
        self._kept[key] = kept.clone()
        if key in self._gates:
            self._gates[key].write(kept)
        else:
            self._gates[key] = Gate(self.units[key], kept)

    def _settle(self) -> None:
        self._pair()
        self.hold()

    def _pair(self) -> None:
        pairs = [pair for gate in self._gates.values() for pair in gate.pairs()]
        self.held = ([p for p, _ in pairs], [kept for _, kept in pairs])
        self._zeros = Zeros(*self.held)


def checked(key: Key, kept: Tensor, masks: Masks) -> Tensor:
    """A mask that fits its unit. Raises RefusedError."""
    parameter, mask_type = key
    unit = masks.units.get(key)
    if mask_type not in NAMES:
        kind = pb.PruningMaskType.Name(mask_type)
        raise RefusedError(Reason.REASON_NOT_SUPPORTED, f"mask of {parameter!r} is {kind}; expected another kind")
    if unit is None:
        raise RefusedError(Reason.REASON_UNKNOWN_PARAMETER, _unknown(key, masks))
    if len(kept) != unit.num_channels:
        raise _out_of_range(parameter, f"covers {len(kept)} {NAMES[mask_type]}", f"{unit.num_channels}")
    return kept


def require_margin(wanted: Mapping[Key, Tensor], masks: Masks, max_ratio: float) -> None:
    """RefusedError where, with what is pruned already, more than this share of a unit, or of the layers, would go."""
    for (parameter, mask_type), kept in wanted.items():
        if mask_type == LAYER:
            layers = [key for key in masks.units if key[1] == LAYER]
            after = [masks.kept(key) & wanted.get(key, torch.ones(1, dtype=torch.bool, device="cpu")) for key in layers]
            share = torch.cat(after)
        else:
            share = masks.kept((parameter, mask_type)) & kept
        if (ratio := int((~share).sum()) / len(share)) > max_ratio:
            of = "the" if mask_type == LAYER else "its"
            raise _out_of_range(parameter, f"prunes {ratio:.4g} of {of} {NAMES[mask_type]}", f"at most {max_ratio:g}")


def _unknown(key: Key, masks: Masks) -> str:
    parameter, mask_type = key
    known = [name for name, kind in masks.units if kind == mask_type]
    if mask_type in (CHANNEL, HEAD):
        expected = f"a weight that no other layer shares{near(parameter, known)}"
    else:
        expected = f"one that the setting {NAMES[mask_type]} names{near(parameter, known)}"
    return f"{parameter!r} has no {NAMES[mask_type]} that can be pruned; expected {expected}"


def _out_of_range(parameter: str, met: str, expected: str) -> RefusedError:
    return RefusedError(Reason.REASON_OUT_OF_RANGE, f"mask of {parameter!r} {met}; expected {expected}")
