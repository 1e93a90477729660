"""The keys of a drawn run: rotated while it goes on, and followed by those who hold some."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from esper.leyline.keys.keyring import OVERLAP_S, MasterKeyring
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role

ROTATIONS = ((0, OVERLAP_S), (0, OVERLAP_S), (1, 5), (2, 0))
"""Seconds until another key takes over, and for how long the one before it still opens and seals then."""


class Keys:
    """A master keyring, and every keyring that was derived from it.

    `file`: whoever signs checkpoints reads it, who does that by the clock on the wall: they are keys of their own.
    """

    def __init__(self, run_id: str, file: Path) -> None:
        self.run_id, self.file = run_id, file
        self._signing = MasterKeyring.new(time.time_ns())
        self._master = MasterKeyring.new(time.time_ns() - 10**9)
        self._held: list[RoleKeyring] = []
        self._write()

    def of(self, *roles: Role, lasts: bool = True) -> RoleKeyring:
        """One that follows what becomes of the keys, if it lasts."""
        made = self._master.derive(self.run_id, roles)
        if lasts:
            made.follow(self._adopter(made))
            self._held.append(made)
        return made

    def rotate(self, now_ns: int, dice: Random, *, slowly: bool) -> None:
        """Some hear of it at once, others only where they meet a key that they don't know."""
        lead_s, overlap_s = ROTATIONS[0] if slowly else dice.choice(ROTATIONS)
        self._master = self._master.rotate(now_ns, lead_s=lead_s, overlap_s=overlap_s)
        self._signing = self._signing.rotate(time.time_ns(), overlap_s=dice.choice([0, OVERLAP_S]))
        self._write()
        for held in self._held:
            if overlap_s < OVERLAP_S or dice.random() < 0.7:
                held.adopt(self._master.derive(self.run_id, held.roles))

    def _adopter(self, held: RoleKeyring) -> Callable[[], bool]:
        def adopt() -> bool:
            held.adopt(self._master.derive(self.run_id, held.roles))
            return True

        return adopt

    def _write(self) -> None:
        self._signing.derive(self.run_id, [Role.WORKER]).save(self.file)
