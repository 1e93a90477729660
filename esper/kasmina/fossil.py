"""How a seed becomes part of the host for good, and how a rollback takes it out again."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import nn
from torch.utils.hooks import RemovableHandle

from esper.errors import RefusedError
from esper.kasmina.seeds.seed import Seed
from esper.kasmina.slots.slot import Fossil, Hook, Slot
from esper.kernels.residual import Residual, Scaled
from esper.kernels.split import gathered, gathers, is_split
from esper.leyline import contracts as pb

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)  # their forward, or their owner's, runs every child


@dataclass(frozen=True, slots=True)
class Joined:
    """A fossil with parameters of its own: the site, the module that it is a child of, its name there, its hook."""

    site: nn.Module
    home: nn.Module
    name: str
    handle: RemovableHandle


class Fossils:
    """The seeds that joined the host with parameters of their own. Knows no stages."""

    def __init__(self, host: nn.Module) -> None:
        self.host = host
        self._joined: dict[str, Joined] = {}

    def join(self, slot: Slot, seed: Seed, *, foldable: bool = True) -> list[nn.Parameter]:
        """Fold the seed into the site's weight, or make it a child of the site; the parameters that the host gained.

        Not `foldable` where an earlier seed at the site would then see this one's share too.
        """
        module = seed.module
        assert module is not None  # only a live seed can pass G4
        home, path = home_of(slot.module)  # before anything is changed: it may refuse
        if isinstance(module, Residual):
            module.absorb(float(seed.alpha))
            foldable = foldable and not self._tied(slot.module) and not _hooked(slot.module)
            if foldable and _folded(module, slot.module):
                return []
        else:
            module = Scaled(module, seed.alpha)
        return self._adopt(slot, seed, module, home, path)

    def _tied(self, site: nn.Module) -> bool:
        """Whether another module shares a weight of the site: folding into it would change that one too."""
        own = {id(parameter) for parameter in site.parameters(recurse=False)}
        others = (module for module in self.host.modules() if module is not site)
        return any(id(p) in own for module in others for p in module.parameters(recurse=False))

    def _adopt(self, slot: Slot, seed: Seed, module: nn.Module, home: nn.Module, path: str) -> list[nn.Parameter]:
        name = child_name(seed.seed_id, seed.generation)
        module.train(slot.module.training)  # as a seed it took the site's mode at each call; the last may be long ago
        home.add_module(name, module)
        slot.detach()  # a later seed must see the output with this fossil: the slot's hook comes last
        handle = slot.module.register_forward_hook(Fossil(f"{path}.{name}" if path else name), with_kwargs=True)
        slot.attach()
        self._joined[seed.seed_id] = Joined(slot.module, home, name, handle)
        parameters = list(module.parameters())
        for parameter in parameters:
            parameter.grad = None
        return parameters

    def join_again(self, slot: Slot, seed: Seed, module: nn.Module) -> None:
        """Take in what a checkpoint holds of a fossil: its alpha is in its tensors already."""
        self._adopt(slot, seed, module, *home_of(slot.module))

    def modules(self) -> dict[str, nn.Module]:
        """Those that are children of the host, by seed id, in the order in which they joined."""
        return {seed_id: joined.home.get_submodule(joined.name) for seed_id, joined in self._joined.items()}

    def name_of(self, slot: Slot, seed_id: str, generation: int) -> str:
        """The name under which the host holds, or would hold, this seed's module."""
        home, _ = home_of(slot.module)
        below = next(name for name, module in self.host.named_modules() if module is home)
        return f"{below}.{child_name(seed_id, generation)}" if below else child_name(seed_id, generation)

    def part(self, seed_id: str) -> None:
        """Undo a join. The host's own weights come back from its snapshot."""
        if seed_id in self._joined:
            joined = self._joined.pop(seed_id)
            joined.handle.remove()
            delattr(joined.home, joined.name)

    def fold(self) -> list[nn.Parameter]:
        """Where no slot is left on any site: fold what a seed there kept from being folded when it joined.

        Returns the parameters that the host lost by it.
        """
        gone: list[nn.Parameter] = []
        for seed_id, joined in list(self._joined.items()):
            module = getattr(joined.home, joined.name)
            # What hangs on the site before it, such as another fossil, would see its share.
            first = next(iter(joined.site._forward_hooks)) == joined.handle.id
            first = first and not any(map(is_split, joined.site._parameters.values()))  # else others are waited for
            foldable = first and isinstance(module, Residual) and not self._tied(joined.site)
            if foldable and module.fold_into(joined.site):
                gone += module.parameters()
                self.part(seed_id)
        return gone


def _folded(module: Residual, site: nn.Module) -> bool:
    with gathered(site) as whole:
        return module.fold_into(whole)


def _hooked(site: nn.Module) -> bool:
    """Whether something else follows on the output, such as a fossil: folded weights would change what it sees."""
    return any(not (isinstance(hook, Hook) or gathers(hook)) for hook in site._forward_hooks.values())


def child_name(seed_id: str, generation: int) -> str:
    return f"seed_{re.sub(r'[^0-9A-Za-z_]', '_', seed_id)}_{generation}"


def newest_generation(module: nn.Module) -> int:
    """Of the fossils that an earlier run has left at a site; 0 where there are none.

    Seeds here are counted on from it: a fossil of the same name would take the place of an old one, whose hook stays.
    """
    children = (name for each in module.modules() for name, _ in each.named_children())
    found = (re.fullmatch(r"seed_\w*_(\d+)", name) for name in children)
    return max((int(match[1]) for match in found if match), default=0)


def home_of(module: nn.Module) -> tuple[nn.Module, str]:
    """The nearest module that does not run its children blindly, with its path below the site."""
    for path, candidate in module.named_modules():
        if not isinstance(candidate, CONTAINERS):
            return candidate, path
    detail = f"the site is an empty {type(module).__name__}; a fossil needs a module in it to belong to"
    raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, detail)
