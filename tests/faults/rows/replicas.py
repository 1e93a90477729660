"""Workers in no process group stand still, one at a time: each is evicted alone, and joins again when it wakes up."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from esper.bus.names import POSITIONED, key
from tests.faults import check_rounds
from tests.faults.council import RUN, Council, council
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import Tail
from tests.faults.server import single
from tests.faults.serving import Serve

DESTROYED_S = 10.0


@dataclass
class Fates:
    """Who stands still next. What the others do meanwhile is read off what they write down."""

    town: Council
    result: Result
    children: dict[str, Child] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tail = Tail(self.town.directory / "history", "worker")
        self._redis = self.town.server.client()

    def begin(self, number: int) -> None:
        """One more worker, which joins where the furthest one is."""
        step = max((record["step"] for record in self._tail.records()["committed"]), default=1)
        self.children[f"worker-{number}"] = self.town.train(number, step=step)

    def all_vote(self, names: Iterable[str]) -> None:
        """Wait until each of these has voted once more."""
        before = {name: self._num_votes(name) for name in names}
        wait_until(lambda: all(self._num_votes(name) > before[name] for name in before), "all vote", SOON_S)

    def stop(self, number: int) -> None:
        """One stands still until it is evicted and its groups are gone; then it wakes up, ends, and begins anew."""
        name = f"worker-{number}"
        victim, others = self.children[name], {other for other in self.children if other != name}
        self.result.expect(self._groups(name) == set(POSITIONED), f"{name} read by {self._groups(name)}")
        victim.pause()
        self.town.expect_given_up(self.result, "one that hung", lambda: name in self._evicted())
        self.all_vote(others)
        gone_s = wait_until(lambda: not self._groups(name), f"groups of {name} are destroyed")
        self.result.expect_soon(gone_s <= DESTROYED_S, f"its groups stood for {gone_s:.1f} s")
        victim.resume()
        wait_until(lambda: not victim.alive, "one that wakes up learns that it was evicted")
        self.result.expect("evicted alone" in victim.last_words(), f"it ended otherwise: {victim.last_words()}")
        self.result.expect(all(self.children[other].alive for other in others), "another one ended too")
        self.begin(number)
        self.all_vote(self.children)
        self.result.count("evicted_alone")

    def _evicted(self) -> str:
        """What the newest leader has told the operator of evictions."""
        lines = (log.read_text().splitlines() for log in self.town.directory.glob("logs/coordinator-*.log"))
        return "\n".join(line for each in lines for line in each if "worker.evicted" in line)

    def _groups(self, name: str) -> set[str]:
        streams = {stream: key(RUN, stream) for stream in POSITIONED}
        return {
            stream
            for stream, at in streams.items()
            if any(group["name"].decode() == name for group in self._redis.xinfo_groups(at))
        }

    def _num_votes(self, name: str) -> int:
        return sum(record["worker"] == name for record in self._tail.records()["voted"])


def run(directory: Path, amounts: Amounts, seed: int, serve: Serve = single) -> Result:
    result, chance = Result(), random.Random(seed)
    with council(directory, amounts["workers"], serve) as town:
        town.alone = True
        town.lead()
        fates, commander = Fates(town, result), town.command(amounts["commands_per_s"])
        for number in range(amounts["workers"]):
            fates.begin(number)
        fates.all_vote(fates.children)
        for number in chance.sample(range(amounts["workers"]), amounts["stops"]):
            fates.stop(number)
        town.close_orders(commander, result)
    for violation in check_rounds.judge_rounds(town.history()):
        result.expect(False, violation)
    return result


ROW = Row(
    "replicas",
    run,
    ci={"workers": 3, "stops": 1, "commands_per_s": 10},
    chunk={"workers": 6, "stops": 6, "commands_per_s": 10},
    num_chunks=10,
    anywhere=True,
)
