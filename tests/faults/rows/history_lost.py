"""The stream, its groups or all of Redis deleted or evicted under load: work goes on, nothing is applied twice."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis

from tests.faults.accounts import Accounts, events, gaps_told
from tests.faults.processes import sleep_until, wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.scene import COMMANDS, Scene, check_logs, scene
from tests.faults.server import Server

COMMANDER, FOLLOWERS = "commander", ("follower-0", "follower-1")
RESUMED_S = 5.0
BETWEEN_S = 1.2
NUM_COPIES = 20


@dataclass(slots=True)
class Loss:
    """One fault: when it was done, and entries that were destroyed before a group had settled them."""

    what: str
    at_ns: int
    groups: Sequence[str]
    destroyed: dict[str, set[str]] = field(default_factory=dict)  # by group, ids of entries
    copies: Sequence[bytes] = ()  # sealed commands that every group had settled, to be published again


def flushall(server: Server) -> Loss:
    return deleting(server, "FLUSHALL")


def delete(server: Server) -> Loss:
    return deleting(server, "DEL", COMMANDS)


def deleting(server: Server, *order: str) -> Loss:
    """Run an order that removes the stream; in the same transaction, see what it takes along."""
    with redis.Redis.from_url(server.url) as client:
        transaction: Any = client.pipeline(transaction=True)
        survey(transaction)
        transaction.execute_command(*order)
        transaction.exists(COMMANDS)
        *told, _, exists = transaction.execute()
    assert not exists, f"{order[0]} left the stream there"
    assert told[0], "there was no stream to lose"
    return Loss(order[0].lower(), time.monotonic_ns(), FOLLOWERS, *unsettled(told))


def xgroup_destroy(server: Server) -> Loss:
    """The group of one follower; the entries stay, and are read again from the first."""
    assert server.ask("XGROUP", "DESTROY", COMMANDS, FOLLOWERS[0]) == 1, "there was no group to destroy"
    return Loss("xgroup_destroy", time.monotonic_ns(), FOLLOWERS[:1])


def evict(server: Server) -> Loss:
    """A policy that may evict, and memory for nothing: until the stream is gone, which no write can bring back yet."""
    with redis.Redis.from_url(server.url) as client:
        before = client.info("stats")["evicted_keys"]
        client.config_set("maxmemory-policy", "allkeys-lru")
        transaction: Any = client.pipeline(transaction=True)
        survey(transaction)
        transaction.config_set("maxmemory", 1)
        *told, _ = transaction.execute()
        wait_until(lambda: not client.exists(COMMANDS), "the stream is evicted")
        evicted = client.info("stats")["evicted_keys"] - before
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")
    assert evicted > 0, "nothing was evicted"
    return Loss("eviction", time.monotonic_ns(), FOLLOWERS, *unsettled(told))


KINDS: Sequence[Callable[[Server], Loss]] = (flushall, xgroup_destroy, delete, evict)


def survey(transaction: Any) -> None:
    """How far each group is: entries after its last one, and those pending, are not settled."""
    transaction.xrange(COMMANDS)
    transaction.xinfo_groups(COMMANDS)
    for group in FOLLOWERS:
        transaction.xpending_range(COMMANDS, group, "-", "+", 100_000)


def unsettled(told: Sequence[Any]) -> tuple[dict[str, set[str]], list[bytes]]:
    """By group what it had not settled; and the newest commands that all had."""
    entries, groups, *pending = told
    marks = {row["name"].decode(): order(row["last-delivered-id"]) for row in groups}
    destroyed = {
        group: {row["message_id"].decode() for row in rows}
        | {entry_id.decode() for entry_id, _ in entries if order(entry_id) > marks[group]}
        for group, rows in zip(FOLLOWERS, pending, strict=True)
    }
    anywhere = set().union(*destroyed.values())
    settled = [fields[b"m"] for entry_id, fields in entries if entry_id.decode() not in anywhere]
    return destroyed, settled[-NUM_COPIES:]


def order(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, count = entry_id.decode().partition("-")
    return int(milliseconds), int(count)


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    result, chance = Result(), random.Random(seed)
    with Server(directory / "redis") as server, scene(directory) as stage:
        refuses_to_start(server, stage)
        result.count("starts_refused")
        for name in FOLLOWERS:
            stage.follow(name, server.url)
        stage.command(COMMANDER, server.url)
        stage.goes_on(COMMANDER, 50)
        first = chance.randrange(len(KINDS))
        losses = [lose(server, stage, KINDS[(first + each) % len(KINDS)], chance) for each in range(amounts["losses"])]
        accounts = stage.finish(server)
        judge(result, stage, accounts, losses)
        check_logs(result, stage, len(losses), RESUMED_S)
    if amounts["town_losses"]:
        lose_below_a_town(directory, amounts["town_losses"], result)
    return result


def lose_below_a_town(directory: Path, num_losses: int, result: Result) -> None:
    from tests.faults.town_losses import lose_below_a_town as lose  # with torch, which the other rows do without

    lose(directory / "town", num_losses, result)


def refuses_to_start(server: Server, stage: Scene) -> None:
    """On a server that may evict streams a process ends at once, and says why."""
    server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    process = stage.start("follower", "refused", server.url)
    wait_until(lambda: not process.alive, "a process refuses to start")
    assert "may evict streams; expected noeviction" in process.last_words(), process.last_words()
    server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")


def lose(server: Server, stage: Scene, kind: Callable[[Server], Loss], chance: random.Random) -> Loss:
    """One fault under load, and a while after it."""
    until = time.monotonic() + chance.uniform(0.8, 1.2) * BETWEEN_S
    loss = kind(server)
    for name in FOLLOWERS:
        stage.follows(name)
    for sealed in loss.copies:
        server.ask("XADD", COMMANDS, "*", "m", sealed)
    sleep_until(until)
    return loss


def judge(result: Result, stage: Scene, accounts: Accounts, losses: Sequence[Loss]) -> None:
    result.count("acknowledged", len(accounts.acked))
    for name in FOLLOWERS:
        destroyed = {entry_id for loss in losses for entry_id in loss.destroyed.get(name, ())}
        excused = {each for each, record in accounts.acked.items() if record["entry_id"] in destroyed}
        accounts.check(result, name, excused)
        result.count("destroyed_unread", len(excused))
        untold = {each for each in excused if not accounts.applied[name][each]} - gaps_told(stage.log(name))
        result.expect(not untold, f"{name} never told that these are missing: {sorted(untold)[:5]}")
        result.count("refused", len(accounts.refused[name]))
        told, times = len(events(stage.log(name), "history.lost")), sum(name in loss.groups for loss in losses)
        result.expect(told == times, f"{name} told {told} times that history is lost; it was {times} times")
        refused = sum(record["reason"] == "replayed" for record in accounts.refused[name])
        due = sum(len(loss.copies) for loss in losses)
        result.expect(refused >= due, f"{name} refused {refused} replays; {due} were published")
    for loss in losses:
        result.count(loss.what)
        result.count("replays_after_loss", len(loss.copies))
        for name in loss.groups:
            resumed_s = resumed_after(accounts, name, loss.at_ns)
            result.sample("resumed_s", resumed_s)
            result.expect_soon(resumed_s <= RESUMED_S, f"{name} resumed {resumed_s:.1f} s after {loss.what}")


def resumed_after(accounts: Accounts, name: str, at_ns: int) -> float:
    """When the first command that was sent after this moment took effect."""
    took = accounts.applied_ns[name]
    after = [ns for each, ns in took.items() if accounts.sent_ns[each] > at_ns]
    return (min(after) - at_ns) / 1e9 if after else float("inf")


ROW = Row("history_lost", run, ci={"losses": 6, "town_losses": 0}, chunk={"losses": 12, "town_losses": 5}, num_chunks=5)
