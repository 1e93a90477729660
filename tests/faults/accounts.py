"""What became of each command, from the histories alone. Imports nothing of the runtime."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.history import Record, records
from tests.faults.row import Result


@dataclass(slots=True)
class Accounts:
    """What commanders sent and Redis acknowledged, and what took effect on each follower."""

    sent_ns: dict[str, int] = field(default_factory=dict)
    acked: dict[str, Record] = field(default_factory=dict)
    applied: dict[str, Counter[str]] = field(default_factory=dict)
    applied_ns: dict[str, dict[str, int]] = field(default_factory=dict)
    refused: dict[str, list[Record]] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path, commanders: Iterable[str], followers: Iterable[str]) -> Accounts:
        accounts = cls()
        for name in commanders:
            for record in records(directory, name):
                accounts._note_publish(record)
        for name in followers:
            accounts._note_follower(name, list(records(directory, name)))
        return accounts

    def _note_publish(self, record: Record) -> None:
        if record["what"] == "sent":
            self.sent_ns[record["id"]] = record["at_ns"]
        elif record["what"] == "acked":
            self.acked[record["id"]] = record

    def _note_follower(self, name: str, told: list[Record]) -> None:
        took = [record for record in told if record["what"] == "applied"]
        self.applied[name] = Counter(record["id"] for record in took)
        self.applied_ns[name] = {record["id"]: record["at_ns"] for record in reversed(took)}  # the first time counts
        self.refused[name] = [record for record in told if record["what"] == "refused"]

    def check(self, result: Result, name: str, excused: Collection[str] = ()) -> None:
        """Each acknowledged command took effect on this follower once; one that is excused, at most once."""
        took = self.applied[name]
        lost = [each for each in self.acked if not took[each] and each not in excused]
        twice = [each for each, times in took.items() if times > 1]
        result.expect(not lost, f"{name}: {len(lost)} of {len(self.acked)} acknowledged lost: {lost[:5]}")
        result.expect(not twice, f"{name}: {len(twice)} applied twice: {twice[:5]}")
        strangers = [each for each in took if each not in self.sent_ns]
        result.expect(not strangers, f"{name}: applied and never sent: {strangers[:5]}")


def log_lines(log: Path) -> Iterator[Mapping[str, Any]]:
    """Events that a process has logged as JSON; what else it said has the event `text`."""
    for line in log.read_text(errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            yield {"event": "text", "text": line}


def events(log: Path, name: str) -> list[Mapping[str, Any]]:
    return [line for line in log_lines(log) if line.get("event") == name]


def gaps_told(log: Path) -> set[str]:
    """Ids of commands that a follower has said are missing."""
    told = set()
    for event in events(log, "sequence.gap"):
        told |= {f"{event['producer']}/{number}" for number in range(event["first"], event["last"] + 1)}
    return told
