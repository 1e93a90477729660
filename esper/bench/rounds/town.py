"""The processes of one arm, and the rounds that they make."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from esper.bench.rounds.part import Part
from esper.bus.names import new_run_id
from esper.leyline.keyring import MasterKeyring
from esper.leyline.kinds import Role


@dataclass(frozen=True)
class Slice:
    """Milliseconds from each proposal to the moment at which the last member saw its commit; rounds in a second."""

    latencies_ms: list[float]
    per_s: float


class Town(AbstractContextManager["Town"]):
    """A leader and its members, in so many processes."""

    def __init__(self, leader: Part, members: Sequence[Part], stack: ExitStack) -> None:
        self.leader, self.members, self._stack = leader, members, stack
        for part in (*members, leader):
            part.answer()

    def rounds(self, num: int) -> Slice:
        """So many rounds, one after the other."""
        led = self.leader.ask(rounds=num)
        time.sleep(0.02)  # the last commit may still be on its way
        proposed = {int(number): at for number, at in led["proposed_ns"]}
        seen: dict[int, list[int]] = {}
        for told in [trainer for part in self.members for trainer in part.ask(now=True)]:
            for number, at in told:
                seen.setdefault(number, []).append(at)
        taken = [(max(seen[number]) - at) / 1e6 for number, at in proposed.items() if number in seen]
        return Slice(taken, len(proposed) / led["seconds"])

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def ours(url: str, directory: Path, name: str, num: int, per_process: int = 1) -> Town:
    """The real coordinator and runtimes, in a run of their own."""
    stack, run_id = ExitStack(), new_run_id(name)
    master, keyrings = MasterKeyring.new(time.time_ns() - 1_000_000_000), {}
    for role in (Role.COORDINATOR, Role.WORKER):
        keyrings[role] = str(directory / f"{name}-{role}.json")
        master.derive(run_id, [role]).save(Path(keyrings[role]))
    leader = stack.enter_context(
        Part("esper.bench.rounds.leader", f"{name}-leader", directory, url=url, keyring=keyrings[Role.COORDINATOR])
    )
    members = [
        stack.enter_context(
            Part(
                "esper.bench.rounds.members",
                f"{name}-{first}",
                directory,
                url=url,
                run_id=run_id,
                keyring=keyrings[Role.WORKER],
                ranks=list(range(first, min(first + per_process, num))),
                world_size=num,
            )
        )
        for first in range(0, num, per_process)
    ]
    return Town(leader, members, stack)
