"""Where `esper acl` leaves what it writes for the run of the tests, and how a process finds it."""

from __future__ import annotations

from pathlib import Path

from esper.bus.acl import ADMIN, user_name

RUN = "toy-0a1b2c3d"


def path_of(directory: Path, role: str) -> Path:
    return directory / "passwords" / f"{role if role == ADMIN else user_name(RUN, role)}.env"


def environment(path: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in path.read_text().splitlines())
