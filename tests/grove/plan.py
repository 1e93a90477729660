"""What is drawn for a life on several ranks: the host, how they share gradients, how it is trained, the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from esper.kasmina.config import KasminaConfig
from tests.garden.hosts import KINDS
from tests.garden.loops import EVERYWHERE, SCHEDULERS
from tests.garden.odd import ALL
from tests.garden.plan import Act, varied
from tests.grove.sharded import Shards
from tests.grove.taught import Taught

WORLD_SIZE = 2  # of most
FIRST_SEED = 41_000  # of lives with three ranks, schedulers and compiled models among them
TEACHES_FROM = 60_000  # half of these and later lives have teachers
SHARDS_FROM = 160_000  # half of these and later lives have a host that fully_shard has split
PRUNES_FROM = 120_000  # half of these and later lives prune, and who resumes may lack its newest checkpoint
EVENTS = ("raises", "backward raises", "backward raises late", "not finite", "forgets", "skips")
"""What may befall a step: its forward raises, or its backward does at its beginning or at its end; a batch is not
finite; the optimizer does not step; nothing is run."""
OF_ONE = EVENTS[:4]
"""These may befall one rank alone; the script has all leave the step out."""
AS_ONE, SHARDED = "as one", "sharded"


@dataclass(frozen=True)
class Sharing:
    """How gradients come to be the same on all ranks."""

    way: str
    """ddp before attach(), or after it; plain: the script averages them itself, or only its own, not those of fossils;
    sharded: fully_shard splits the host. as one: the data are the same."""
    options: Mapping[str, bool] = field(default_factory=dict)  # of DistributedDataParallel
    no_sync: bool = False  # accumulates without a word to the other rank
    uneven: bool = False  # rank 1 accumulates once more

    @property
    def is_ddp(self) -> bool:
        return self.way.startswith("ddp")

    @classmethod
    def draw(cls, dice: Random, kind: str, num_micro: int) -> Sharing:
        way = dice.choice(["ddp before", "ddp before", "ddp after", "plain", "plain own", AS_ONE])
        no_sync = num_micro > 1 and kind != "skips" and dice.random() < 0.6  # DDP can't have both
        options = {
            "find_unused_parameters": kind == "skips" or dice.random() < 0.25,
            "static_graph": kind != "skips" and not no_sync and dice.random() < 0.2,
            "gradient_as_bucket_view": dice.random() < 0.4,
            "broadcast_buffers": dice.random() < 0.7,
        }
        return cls(way, options, no_sync, uneven=no_sync and way.startswith("ddp") and dice.random() < 0.4)


@dataclass(frozen=True)
class Manner:
    """How the script trains."""

    optimizer: str
    num_micro: int
    clips: bool
    autocast: bool
    scales: bool
    sets_to_none: bool
    evaluates: str  # "": not; one: rank 0 alone, on the bare host; both
    eventful: float  # share of steps that something befalls

    @classmethod
    def draw(cls, dice: Random) -> Manner:
        return cls(
            dice.choice([each for each in EVERYWHERE if each != "lbfgs"]),
            dice.choice([1, 1, 2, 3]),
            dice.random() < 0.3,
            dice.random() < 0.2,
            dice.random() < 0.2,
            dice.random() < 0.7,
            dice.choice(["", "one", "both"]),
            dice.choice([0.0, 0.15, 0.3]),
        )

    def event(self, number: int) -> tuple[str, tuple[int, ...]]:
        """What befalls the step with these batches, and which ranks; most often nothing."""
        dice = Random(number)
        if dice.random() >= self.eventful:
            return "", ()
        event = dice.choice(EVENTS)
        return event, dice.choice([(0,), (1,), (0, 1)]) if event in OF_ONE else (0, 1)


@dataclass(frozen=True)
class More:
    """What else a script may have."""

    world_size: int = WORLD_SIZE
    scheduler: str = ""
    compiles: bool = False
    copies: bool = False  # rank 0 alone trains a copy of the host now and then, as for an average of it

    @classmethod
    def draw(cls, dice: Random) -> More:
        return cls(dice.choice([2, 2, 2, 3]), dice.choice(["", *SCHEDULERS]), dice.random() < 0.06, dice.random() < 0.2)


TWO = More()


@dataclass(frozen=True)
class Plan:
    """Of one life."""

    seed: int
    kind: str
    sharing: Sharing
    manner: Manner
    settings: KasminaConfig
    lenient: bool
    blueprints: tuple[str, ...]
    num_steps: int
    checkpoints: int  # steps between two of them; 0: none are made
    more: More = TWO
    taught: Taught | None = None  # None: by no teacher
    prunes: bool = False
    shards: Shards | None = None

    @classmethod
    def draw(cls, seed: int) -> Plan:
        dice = Random(seed)
        kind, manner = dice.choice([*KINDS]), Manner.draw(dice)
        settings = varied(dice)
        blueprints = tuple(dice.sample([*ALL], dice.choice([2, 5, len(ALL)])))
        sharing = Sharing.draw(dice, kind, manner.num_micro)
        lenient, checkpoints = dice.random() < 0.85, dice.choice([0, 0, 5])
        num_steps, more = dice.randint(12, 30), More.draw(Random(f"more {seed}")) if seed >= FIRST_SEED else TWO
        drawn = cls(seed, kind, sharing, manner, settings, lenient, blueprints, num_steps, checkpoints, more)
        prunes = seed >= PRUNES_FROM and Random(f"prunes {seed}").random() < 0.5
        drawn = replace(drawn, prunes=prunes)
        teaches = seed >= TEACHES_FROM and Random(f"teaches {seed}").random() < 0.5
        drawn = replace(drawn, taught=Taught.draw(seed, more.world_size)) if teaches else drawn
        dice = Random(f"shards {seed}")
        return drawn.sharded(dice) if seed >= SHARDS_FROM and dice.random() < 0.5 else drawn

    def sharded(self, dice: Random) -> Plan:
        """With a host that is split: whatever one rank alone does, the others wait for in it."""
        evaluates = "both" if self.manner.evaluates else ""
        manner = replace(self.manner, eventful=0.0, evaluates=evaluates, scales=False)
        more = replace(self.more, compiles=False, copies=False)
        kind = self.kind if self.kind != "skips" else "layers"  # a layer is gathered by all or by none
        split = replace(self, sharing=Sharing(SHARDED), shards=Shards.draw(dice), prunes=False, taught=None)
        return replace(split, kind=kind, manner=manner, more=more)

    def described(self) -> dict[str, Any]:
        """Without the settings."""
        return {name: value for name, value in vars(self).items() if name != "settings"}


@dataclass(frozen=True)
class Turn:
    """What all ranks do next: an act, or the last words."""

    act: Act
    prefetching: tuple[int, ...] = (0, 1)  # ranks
    wraps: bool = False  # the model in DDP anew, before the act
    resumes: bool = False  # before the act: all are begun anew, from the newest checkpoint
    torn: tuple[int, ...] = ()  # ranks that ended while they wrote their newest checkpoint
    accuracies: tuple[float, ...] = ()  # which each rank's script notes
    ends: bool = False
