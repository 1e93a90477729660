"""What lives from the fifty-thousandth on have besides: teachers, pruning of all kinds, pauses, leases, little room."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from torch import nn

from esper.errors import SettingError
from esper.kasmina.config import KasminaConfig
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.pruner import Pruning
from esper.kernels.teacher import int8
from esper.kernels.teacher.settings import MODES

FIRST_SEED = 50_000
"""Lives before this one are kept as they were drawn."""
DISTILS = ("model", "seed", "both")
MOODS = ("", "", "", "raises", "has no memory", "overflows", "is built by a broken factory", "is the host itself")


@dataclass(frozen=True)
class Wide:
    """Of one life; the defaults are what lives had before."""

    teaches: str = ""  # what is drawn to the teacher's logits; empty: nothing, and there is no source of teachers
    mode: str = "full"
    mood: str = ""
    is_tried: bool = False  # on a sample, before it is taken
    is_awaited: bool = True  # taken at the first decision after its command, so that it is the same each time
    budget: float = 0.0  # bytes that a teacher may take, in shares of what the whole one takes; 0: any number
    prunes: bool = False
    pauses: float = 0.0  # share of acts with an order before which the whole run is paused, and resumed behind it
    steps_by_lease: bool = False  # its controller grants the host one step at a time
    reacts: bool = False  # its controller answers to receipts
    compiles: str = ""  # seeds ("seeds") or the whole model ("model"); empty: neither
    backend: str = "eager"  # that does it
    room: int = 0  # bytes for all seeds together; 0: more than enough
    crowds: bool = False  # more seeds are asked for than there is room for
    lasts: int = 0  # steps that a pooled kernel stays; 0: longer than a life

    @classmethod
    def draw(cls, dice: Random) -> Wide:
        teaches = dice.choice(["", "", *DISTILS])
        modes = [mode for mode in MODES if mode != "int8" or int8.available()]
        return cls(
            teaches,
            dice.choice(modes),
            dice.choice(MOODS),
            dice.random() < 0.5,
            dice.random() < 0.8,
            dice.choice([0.0, 0.0, 0.0, 0.5, 1.5]),
            prunes=dice.random() < 0.5,
            pauses=dice.choice([0.0, 0.0, 0.3]),
            steps_by_lease=dice.random() < 0.15,
            reacts=dice.random() < 0.5,
            compiles=dice.choice(["seeds", "model"]) if dice.random() < 0.05 else "",
            room=dice.choice([0, 0, 0, 3_000, 12_000]),
            lasts=dice.choice([0, 0, 2]),
        )

    def fitted(self, settings: KasminaConfig) -> KasminaConfig:
        """The executor's settings, with these."""
        return self.compiling(replace(settings, seeds_memory_bytes=self.room or settings.seeds_memory_bytes))

    def compiling(self, settings: KasminaConfig) -> KasminaConfig:
        return replace(settings, torch_compile_backend=self.backend if self.compiles == "seeds" else "")


def pruning_of(seed: int, host: nn.Module) -> KasminaCheckpointPruningConfig:
    """Settings that this host takes: of what it has not, it would say so."""
    dice = Random(f"pruning {seed}")
    plain = KasminaCheckpointPruningConfig(
        safety_margin=dice.choice([0.5, 0.9]),
        schedule=dice.choice(["one_shot", "cubic"]),
        ramp_steps=dice.choice([0, 6]),
        ramp_every=dice.choice([1, 3]),
        importance_every=dice.choice([0, 1, 3]),
        median_steps=dice.choice([2, 50]),
        watch_steps=dice.choice([1, 6, 1000]),
        check_every=dice.choice([1, 2]),
        max_gradient_ratio=dice.choice([1.01, 5.0]),
        max_consecutive_failures=dice.choice([1, 3]),
    )
    modules = [name for name, each in host.named_modules() if name and [*each.parameters()]]
    named = replace(plain, layers=dice.sample(modules, min(2, len(modules))) if dice.random() < 0.5 else ())
    if dice.random() < 0.5:
        named = replace(named, weights=[dice.choice([name for name, _ in host.named_parameters()])])
    try:
        Pruning(host, named).close()
    except SettingError:
        return plain
    return named
