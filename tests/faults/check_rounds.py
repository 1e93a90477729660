"""Judges what ranks wrote down of their rounds: nothing early, nothing twice, one decision each. Imports no runtime."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from tests.faults.history import Record

PROMISE_STEPS = 8
SHOWN = 5

Round: TypeAlias = tuple[int, int]
"""Generation and number."""


def judge_rounds(records: Iterable[Record]) -> Iterator[str]:
    """Every promise of the barrier that these show broken; records of one process in its order."""
    lives: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        lives[record["incarnation"]].append(record)
    for life in lives.values():
        yield from early(life)
        yield from applied_once_and_in_time(life)
    yield from one_decision(record for life in lives.values() for record in life)


def one_decision(records: Iterable[Record]) -> Iterator[str]:
    """What of it does not hold: all that heard of a round heard the same, with one step, log position and commands.

    No command is in two rounds.
    """
    heard: dict[Round, set[str]] = defaultdict(set)
    rounds: dict[str, set[Round]] = defaultdict(set)
    for record in records:
        if record["what"] in ("committed", "aborted"):
            facts = (record.get(fact) for fact in ("step", "position", "commands"))
            heard[round_of(record)].add(" ".join(map(str, (record["what"], *facts))))
            for command in record.get("commands", ()):
                rounds[command].add(round_of(record))
    for number, said in heard.items():
        if len(said) > 1:
            yield f"round {number} was decided in {len(said)} ways: {sorted(said)[:SHOWN]}"
    for command, numbers in rounds.items():
        if len(numbers) > 1:
            yield f"command {command} is in {len(numbers)} rounds: {sorted(numbers)[:SHOWN]}"


def early(life: Sequence[Record]) -> Iterator[str]:
    """What of it does not hold: eight steps after a vote none begins before a decision on it is heard."""
    promised: tuple[Round, int] | None = None
    for record in life:
        match record["what"]:
            case "voted":
                promised = (round_of(record), record["step"])
            case "committed" | "aborted":
                if promised is not None and record["round"] >= promised[0][1]:
                    promised = None
            case "began":
                if promised is not None and record["step"] >= promised[1] + PROMISE_STEPS:
                    yield f"{record['worker']} began step {record['step']}, having voted {promised}"


def applied_once_and_in_time(life: Sequence[Record]) -> Iterator[str]:
    """What of it does not hold: each commit heard is carried out once, before its step and after the one before it."""
    due: dict[Round, int] = {}
    named: dict[Round, list[str]] = {}
    times: Counter[Round] = Counter()
    for record in life:
        match record["what"]:
            case "committed":
                due.setdefault(round_of(record), record["step"])
                named.setdefault(round_of(record), record["commands"])
            case "applied":
                number = round_of(record)
                times[number] += 1
                if due.get(number) != record["step"]:
                    yield f"{record['worker']} applied {number} before step {record['step']}, not {due.get(number)}"
                elif named[number] != record["commands"]:
                    yield f"{record['worker']} applied {record['commands']} in {number}, not {named[number]}"
            case "began":
                missed = [number for number, step in due.items() if step <= record["step"] and not times[number]]
                if missed:
                    yield f"{record['worker']} began step {record['step']} without {missed[:SHOWN]}"
                due = {number: step for number, step in due.items() if step > record["step"] or not times[number]}
    for number, count in times.items():
        if count > 1:
            yield f"{life[0]['worker']} applied {number} {count} times"


def waits_s(life: Iterable[Record]) -> Iterator[float]:
    """Seconds from each vote to the decision that freed its voter."""
    since: dict[Round, int] = {}
    for record in life:
        if record["what"] == "voted":
            since[round_of(record)] = record["at_ns"]
        elif record["what"] in ("committed", "aborted"):
            for number in [each for each in since if each[1] <= record["round"]]:
                yield (record["at_ns"] - since.pop(number)) / 1e9


def rounds_committed(records: Iterable[Record]) -> set[Round]:
    """Every round that some rank heard to be committed."""
    return {round_of(record) for record in records if record["what"] == "committed"}


def round_of(record: dict[str, Any]) -> Round:
    return record["generation"], record["round"]
