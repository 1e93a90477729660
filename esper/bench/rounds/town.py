"""The processes of one arm, and the rounds that they make."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from esper.bench.rounds.part import Part
from esper.bus.names import new_run_id
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role

PATIENCE_S = 1.0  # for the last commit


@dataclass(frozen=True)
class Slice:
    """Milliseconds from each proposal to the moment at which the last member saw its commit; rounds in a second; and
    how many are in no latency, as a member has not seen their commit."""

    latencies_ms: list[float]
    per_s: float
    num_unseen: int = 0


class Town(AbstractContextManager["Town"]):
    """A leader and its members, in so many processes."""

    def __init__(self, leader: Part, members: Sequence[Part], stack: ExitStack) -> None:
        """Once all of them are ready, `stack` is the town's to close; before, whoever opened it ends them."""
        self.leader, self.members = leader, members
        for part in (*members, leader):
            part.answer()
        self._stack = stack.pop_all()

    def rounds(self, num: int) -> Slice:
        """So many rounds, one after the other."""
        led = self.leader.ask(rounds=num)
        proposed = {int(number): at for number, at in led["proposed_ns"]}
        seen: dict[int, dict[int, int]] = {}
        whole, ends = self._heard(seen), time.monotonic() + PATIENCE_S
        while proposed.keys() - whole and time.monotonic() < ends:  # the last commit may still be on its way
            whole = self._heard(seen)
        taken = [(max(seen[number].values()) - at) / 1e6 for number, at in proposed.items() if number in whole]
        return Slice(taken, len(proposed) / led["seconds"], len(proposed) - len(taken))

    def _heard(self, seen: dict[int, dict[int, int]]) -> set[int]:
        """Note by round and member what they have seen since they were last asked; rounds that all of them have."""
        told = [trainer for part in self.members for trainer in part.ask(now=True)]
        for member, rounds in enumerate(told):
            for number, at in rounds:
                seen.setdefault(number, {})[member] = at
        return {number for number, times in seen.items() if len(times) == len(told)}

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def ours(url: str, directory: Path, name: str, num: int, per_process: int = 1) -> Town:
    """The real coordinator and runtimes, in a run of their own."""
    run_id = new_run_id(name)
    master, keyrings = MasterKeyring.new(time.time_ns() - 1_000_000_000), {}
    for role in (Role.COORDINATOR, Role.WORKER):
        keyrings[role] = str(directory / f"{name}-{role}.json")
        master.derive(run_id, [role]).save(Path(keyrings[role]))

    def member(first: int) -> Part:
        ranks = list(range(first, min(first + per_process, num)))
        keyring = keyrings[Role.WORKER]
        given = {"url": url, "run_id": run_id, "keyring": keyring, "ranks": ranks, "world_size": num}
        return Part("esper.bench.rounds.members", f"{name}-{first}", directory, **given)

    with ExitStack() as stack:
        keyring = keyrings[Role.COORDINATOR]
        leader = Part("esper.bench.rounds.leader", f"{name}-leader", directory, url=url, keyring=keyring)
        stack.enter_context(leader)
        members = [stack.enter_context(member(first)) for first in range(0, num, per_process)]
        return Town(leader, members, stack)
