"""Which module a site's name means, whatever the model was wrapped in."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from torch import nn
from torch.jit import ScriptModule
from torch.nn.parallel import DistributedDataParallel

from esper.errors import SettingError

WRAPPER = "module"  # of DistributedDataParallel and DataParallel, in front of a name only: a model may have one itself
WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")  # anywhere in a name
MOST_NAMES = 12
NUM_NEAR = 4


def bare_name(site: str) -> str:
    """The name that the module has in the model before it is compiled, distributed or checkpointed."""
    parts = [part for part in site.split(".") if part not in WRAPPERS] or [site]
    while len(parts) > 1 and parts[0] == WRAPPER:
        parts = parts[1:]
    return ".".join(parts)


def distribution(model: nn.Module) -> DistributedDataParallel | None:
    """The DistributedDataParallel around it, also below torch.compile; None where it isn't distributed."""
    while isinstance(compiled := getattr(model, "_orig_mod", None), nn.Module):
        model = compiled
    return model if isinstance(model, DistributedDataParallel) else None


def undistributed(model: nn.Module) -> nn.Module:
    """What is below DistributedDataParallel, also below torch.compile; the model itself where it isn't distributed."""
    around = distribution(model)
    below: nn.Module = model if around is None else around.module
    return below


def found(host: nn.Module, site: str) -> nn.Module:
    """The submodule of this name; a module that stands under two names has both. Raises SettingError with near ones."""
    exact: dict[str, nn.Module] = {name: each for name, each in host.named_modules(remove_duplicate=False) if name}
    named = {bare_name(name): module for name, module in exact.items()} | exact
    module: nn.Module | None = named.get(site, named.get(bare_name(site)))
    if module is None:
        raise SettingError(
            "sites", site, _near(site, sorted({bare_name(n) for n, each in exact.items() if is_called(each)}))
        )
    if isinstance(module, ScriptModule):
        raise SettingError("sites", site, "a module of Python code; torch takes no forward hook on a ScriptModule")
    if type(module).forward is nn.Module.forward:  # ModuleList, ModuleDict, ParameterList
        raise SettingError("sites", site, f"a module that is called; a {type(module).__name__} only holds others")
    return module


def is_called(module: nn.Module) -> bool:
    """Whether a hook can be on its forward. A ScriptModule, which takes none, does not even say what its class has."""
    return not isinstance(module, ScriptModule) and type(module).forward is not nn.Module.forward


def modules_at(host: nn.Module, sites: Sequence[str]) -> dict[str, nn.Module]:
    """Bare name -> module. Raises SettingError also where two sites are one module."""
    modules: dict[str, nn.Module] = {}
    for site in sites:
        module = found(host, site)
        for other, taken in modules.items():
            if taken is module:
                raise SettingError("sites", site, f"a module of its own; {other!r} is the same one")
        modules[bare_name(site)] = module
    return modules


def _near(site: str, names: Sequence[str]) -> str:
    """Names that end alike, or are spelled alike; all of them where they are few."""
    if len(names) <= MOST_NAMES:
        return f"one of {', '.join(names) or 'none: the model has no submodules'}"
    last = site.rpartition(".")[2]
    alike = [*get_close_matches(site, names, NUM_NEAR), *(name for name in names if name.endswith(f".{last}"))]
    shown = list(dict.fromkeys(alike))[:NUM_NEAR] or names[:NUM_NEAR]
    return f"the name of a submodule, such as {', '.join(shown)}; `esper sites` lists all {len(names)}"
