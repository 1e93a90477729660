"""What was found out about a machine and about a Redis. None: it does not tell."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """`torch` empty: not installed. `threads`: as OMP_NUM_THREADS says. `quota`: cores that a container is granted."""

    python: tuple[int, int]
    torch: str
    cores: int
    quota: float | None
    threads: str
    shm_free_bytes: int | None
    open_files: int
    clock_synced: bool | None


@dataclass(frozen=True, slots=True)
class DefaultUser:
    """Redis's user `default`, who anybody is that gives no name. `all_rights` None: it does not tell."""

    lets_in: bool
    """Whether it is on, and asks for no password."""
    all_rights: bool | None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server, by INFO, CONFIG, TIME and ACL WHOAMI. Round trips are in seconds, the clock's skew ours minus its."""

    at: str
    version: str
    role: str
    policy: str
    max_memory_bytes: int
    used_memory_bytes: int
    total_memory_bytes: int
    num_evicted: int
    last_writes_well: bool
    promise: str
    """What an acknowledgement is worth, in words."""
    window_s: float | None
    """How much of the newest may be lost in a crash; None: no bound is known."""
    durable: bool
    tells_settings: bool
    num_replicas: int
    num_replicas_wanted: int
    user: str | None
    named_users: bool
    """Whether somebody has a name there, as we may be somebody."""
    default_user: DefaultUser | None
    skew_s: float
    round_trips_s: tuple[float, ...]
    lacks: tuple[str, ...] = ()
    """Commands that a run gives and that the server does not know, as where its configuration renames them."""


@dataclass(frozen=True, slots=True)
class Rights:
    """To which streams of a run a user may add, and which it may read, by name."""

    user: str
    adds: frozenset[str]
    reads: frozenset[str]


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """A sealed message that was published and read. `why`: what went wrong; empty: it arrived after `seconds`."""

    seconds: float
    why: str = ""
    may_not: bool = False
    """Whether the server refused it to this user."""
