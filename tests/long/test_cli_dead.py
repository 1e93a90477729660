"""`esper dead`: what was set aside is shown, replayed once and purged; anything else is one line and status 2."""

from __future__ import annotations

import asyncio
import json
import time
from types import SimpleNamespace

import pytest

from esper.bus import connect
from esper.bus.names import key
from esper.bus.upkeep import dead
from esper.leyline import contracts as pb
from esper.leyline.envelope import DeadlineKind, unpack
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.altered import altered
from tests.bus_kit import bodies
from tests.cli_kit import called
from tests.morgue_kit import Morgue, cull
from tests.scripted import ScriptedRun, accepted


@pytest.fixture
def morgue(run: ScriptedRun, redis_reader: connect.Redis) -> Morgue:
    return Morgue(run, redis_reader)


async def said(run: ScriptedRun, *words: str, given: str = "") -> tuple[int, str, str]:
    """Exit status, stdout and stderr of `esper dead`."""
    return await called("dead", *words, "--run", run.name, given=given)


async def test_the_list_tells_what_was_set_aside_and_why(run: ScriptedRun, morgue: Morgue) -> None:
    junk, poison = await morgue.junk(b"\x1b[2J" * 50), await morgue.poison(cull())

    status, out, _ = await said(run, "list")
    _, some, _ = await said(run, "list", "--reason", "poison", "--since", junk, "--count", "1", "--json")
    row = json.loads(some)

    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [junk, poison]
    assert "bad_seal" in out and "(head only)  the seal does not fit" in out
    assert {name: row[name] for name in ("id", "reason", "stream", "producer", "attempts", "kept")} == {
        **{"id": poison, "reason": "poison", "stream": "commands", "producer": "someone"},
        **{"attempts": 5, "kept": True},
    }


async def test_no_letters_and_no_such_reason_are_told_apart(run: ScriptedRun) -> None:
    assert await said(run, "list", "--reason", "poison") == (0, "", "no dead letters\n")
    assert await said(run, "list", "--json") == (0, "", "")

    status, _, err = await said(run, "purge", "--reason", "bad_sael", "--dry-run")

    assert status == 2
    assert err.startswith("esper: --reason is 'bad_sael'; expected one of oversize, ")
    assert err.endswith("(near: 'bad_seal')\n")


async def test_a_genuine_letter_is_shown_decoded_and_junk_as_hash_and_head(run: ScriptedRun, morgue: Morgue) -> None:
    body = b"\x1b[2J" * 50
    command = cull()
    junk, poison = await morgue.junk(body), await morgue.poison(command)
    forged = await morgue.spent("commands", altered(morgue.sealer.seal(command)))

    shown = {each: json.loads((await said(run, "show", each, "--json"))[1]) for each in (junk, poison, forged)}
    _, out, _ = await said(run, "show", poison)

    assert shown[poison]["body"]["command_id"] == command.command_id
    assert (shown[poison]["type"], shown[poison]["sequence"]) == ("AdaptationCommand", 1)
    assert shown[junk]["head"] == body[:64].hex()
    assert "body" not in shown[forged] and shown[forged]["refused"].startswith("bad_seal: ")
    assert '"seed_id": "s0"' in out


async def test_a_letter_at_the_last_time_there_is_can_be_named_as_the_list_does(
    run: ScriptedRun, morgue: Morgue
) -> None:
    """Whoever may add to the stream may choose an id; all that are added after it lie beside it."""
    last = "18446744073709551615-18446744073709551614"
    await run.redis.xadd(key(run.run_id, "dead"), {"reason": "bad_seal"}, id=last)

    shown, _, _ = await said(run, "show", last)
    purged, _, err = await said(run, "purge", last, "--yes")

    assert (shown, purged, err) == (0, 0, "")
    assert await morgue.letters() == []


async def test_a_replayed_command_is_published_once_and_its_letter_is_gone(run: ScriptedRun, morgue: Morgue) -> None:
    command = cull()
    letter = await morgue.poison(command)

    dry = await said(run, "replay", letter, "--dry-run")
    first = await said(run, "replay", letter)
    second = await said(run, "replay", letter)
    [original, again] = await run.received(count=2)

    what = f"command {command.command_id}, cull s0"
    assert dry == (0, f"would replay {letter} to commands and take its letter away: {what}\n", "")
    assert first == (0, f"replayed {letter} to commands as {again.entry_id}: {what}\n", "")
    assert (second[0], second[2].count("\n")) == (2, 1)
    assert original.message == again.message == command
    assert len(await bodies(run.redis, key(run.run_id, "commands"))) == 2
    assert await morgue.letters() == []


async def test_a_command_whose_time_is_over_gets_as_much_again(run: ScriptedRun, morgue: Morgue) -> None:
    now_ns = time.time_ns() - 2_000_000_000  # by the clock of who sealed it
    keys = run.master.derive(run.run_id, [Role.CONTROLLER])
    sealer = Sealer(keys, Role.CONTROLLER, "someone", clock_ns=lambda: now_ns)
    sealed = sealer.seal(cull(), deadline=(DeadlineKind.TIME_NS, now_ns + 5_000_000))
    letter = await morgue.spent("commands", sealed)

    status, _, _ = await said(run, "replay", letter)

    header = unpack((await bodies(run.redis, key(run.run_id, "commands")))[-1]).header
    assert (status, header.deadline_kind) == (0, DeadlineKind.TIME_NS)
    assert header.deadline > now_ns + 1_000_000_000


async def test_two_replays_of_one_letter_at_once_publish_it_once(run: ScriptedRun, morgue: Morgue) -> None:
    letter, stream = await morgue.poison(cull()), key(run.run_id, "commands")

    again = [dead.put_back(run.redis, run.run_id, letter, stream, b"%d" % number) for number in range(8)]
    ids = await asyncio.gather(*again)

    assert sum(entry_id is not None for entry_id in ids) == 1
    assert len(await bodies(run.redis, stream)) == 2


async def test_a_stream_that_is_none_keeps_the_letter_where_it_is(run: ScriptedRun, morgue: Morgue) -> None:
    letter, stream = await morgue.poison(cull()), key(run.run_id, "commands")
    await run.redis.delete(stream)
    await run.redis.set(stream, "someone else's")

    status, _, err = await said(run, "replay", letter)

    assert (status, err.count("\n")) == (2, 1)
    assert await morgue.letters() == [letter]


async def test_what_was_accepted_once_is_not_replayed(run: ScriptedRun, morgue: Morgue) -> None:
    command = cull()
    letter = await morgue.poison(command)
    await run.answer(accepted(command.command_id, "1-0"))

    status, _, err = await said(run, "replay", letter)

    assert (status, err.count("\n")) == (2, 1)
    assert "take effect twice" in err
    assert await morgue.letters() == [letter]


async def test_what_cannot_be_replayed_is_refused_in_one_line(run: ScriptedRun, morgue: Morgue) -> None:
    vote = Sealer(run.master.derive(run.run_id, [Role.WORKER]), Role.WORKER, "worker-0").seal(
        pb.BarrierVote(version=1, worker="worker-0", round=1)
    )
    command = cull()
    answers = {
        "whole message was kept": await morgue.junk(b"junk"),
        "only its own sealer": await morgue.spent("votes", vote),
        "a command that the coordinator refused": await morgue.poison(command, group="worker-0"),
        "bad_seal": await morgue.spent("commands", altered(morgue.sealer.seal(command))),
        "that of a dead letter": "1-1",
        "an entry id such as": "first",
        "--reason poison": "",
    }

    for expected, letter in answers.items():
        status, out, err = await said(run, "replay", *filter(None, [letter]))

        assert (status, out, err.count("\n")) == (2, "", 1)
        assert expected in err or expected == "bad_seal"
    assert len(await bodies(run.redis, key(run.run_id, "commands"))) == 3


async def test_minutes_ago_are_told_by_the_clock_of_the_server_that_numbers_letters(
    run: ScriptedRun, morgue: Morgue, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = await morgue.junk(b"junk")
    monkeypatch.setattr("esper.cli.dead.time", SimpleNamespace(time=lambda: time.time() + 3600))

    _, found, _ = await said(run, "list", "--since", "30m")
    dry = await said(run, "purge", "--until", "30m", "--dry-run")

    assert [line.split()[0] for line in found.splitlines()] == [letter]
    assert dry == (0, "would purge 0 dead letters\n", "")


async def test_a_purge_asks_first_and_deletes_what_was_chosen(run: ScriptedRun, morgue: Morgue) -> None:
    junk, poison = [await morgue.junk(b"%d" % each) for each in range(3)], await morgue.poison(cull())

    dry = await said(run, "purge", "--reason", "bad_seal", "--dry-run")
    refused = await said(run, "purge", "--reason", "bad_seal", given="n\n")
    asked = await said(run, "purge", "--reason", "bad_seal", "--count", "2", given="y\n")
    left = await morgue.letters()
    unasked = await said(run, "purge", "--reason", "bad_seal", "--yes")

    assert [line.split()[:3] for line in dry[1].splitlines()] == [
        *(["would", "purge", letter] for letter in junk),
        ["would", "purge", "3"],
    ]
    assert refused[0] == 0 and "purged" not in refused[1]
    assert asked[1] == "purged 2 dead letters\n"
    assert asked[2].endswith("for good? [y/N]: ")
    assert left == [junk[2], poison]
    assert unasked == (0, "purged 1 dead letters\n", "")
    assert await morgue.letters() == [poison]


async def test_a_purge_asks_again_until_it_is_answered_and_deletes_nothing_where_nobody_answers(
    run: ScriptedRun, morgue: Morgue
) -> None:
    letter = await morgue.junk(b"junk")

    silent = await said(run, "purge", "--json")
    left = await morgue.letters()
    garbled = await said(run, "purge", "--json", given="what\nYes\n")

    assert (silent[:2], left) == ((130, ""), [letter])
    assert garbled[:2] == (0, '{"purged": 1}\n')
    assert garbled[2].count("[y/N]") == 2


async def test_ids_beside_options_are_refused_rather_than_one_of_them_passed_over(
    run: ScriptedRun, morgue: Morgue
) -> None:
    letter = await morgue.poison(cull())

    answers = [
        await said(run, "purge", letter, "--reason", "bad_seal", "--yes"),
        await said(run, "replay", letter, "--since", "1h"),
    ]

    assert [(status, out, err.count("\n"), "either ids" in err) for status, out, err in answers] == [
        (2, "", 1, True)
    ] * 2
    assert await morgue.letters() == [letter]


async def held(run: ScriptedRun) -> dict[bytes, bytes]:
    """Every key of the run with its content, as the server would write it down."""
    keys = [name async for name in run.redis.scan_iter(match=f"esper:{{{run.run_id}*")]
    return {name: await run.redis.execute_command("DUMP", name, NEVER_DECODE=True) for name in keys}


async def test_a_dry_run_says_what_the_real_one_does_and_changes_nothing(run: ScriptedRun, morgue: Morgue) -> None:
    letters = [await morgue.poison(cull()) for _ in range(3)]
    await morgue.junk(b"junk")
    before = await held(run)

    dry_replay = await said(run, "replay", "--reason", "poison", "--count", "2", "--dry-run", "--json")
    dry_purge = await said(run, "purge", "--stream", "comm*", "--dry-run", "--json")
    await said(run, "list")
    await said(run, "show", letters[0])
    after = await held(run)
    replay = await said(run, "replay", "--reason", "poison", "--count", "2", "--json")
    purge = await said(run, "purge", "--stream", "comm*", "--yes", "--json")

    assert after == before
    would, did = (told[1].splitlines() for told in (dry_replay, replay))
    assert [json.loads(line)["id"] for line in would] == letters[:2]
    assert [{**json.loads(line), "replayed_as": ""} for line in did] == [
        {**json.loads(line), "replayed_as": ""} for line in would
    ]
    assert [json.loads(line).get("would") for line in dry_purge[1].splitlines()] == [*["purge"] * 4, None]
    assert json.loads(dry_purge[1].splitlines()[-1]) == {"would_purge": 4}
    assert json.loads(purge[1]) == {"purged": 2}
    assert await morgue.letters() == []


async def test_letters_are_chosen_by_stream_producer_and_time(run: ScriptedRun, morgue: Morgue) -> None:
    poison, junk = await morgue.poison(cull()), await morgue.junk(b"junk")
    vote = Sealer(run.master.derive(run.run_id, [Role.WORKER]), Role.WORKER, "worker-0").seal(
        pb.BarrierVote(version=1, worker="worker-0", round=1)
    )
    late = await morgue.spent("votes", vote)
    choices = {
        ("--stream", "votes"): [late],
        ("--producer", "some*"): [poison],
        ("--until", junk): [poison, junk],
        ("--since", poison, "--until", junk): [junk],
        ("--since", "1h"): [poison, junk, late],
        ("--since", "$"): [],
        ("--until", "2020-01-01"): [],
    }

    found = {
        choice: [json.loads(line)["id"] for line in (await said(run, "list", "--json", *choice))[1].splitlines()]
        for choice in choices
    }

    assert found == choices


async def test_where_one_letter_cannot_be_replayed_none_is(run: ScriptedRun, morgue: Morgue) -> None:
    good, junk = await morgue.poison(cull()), await morgue.junk(b"junk")
    before = await held(run)

    status, out, err = await said(run, "replay", good, junk)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert await held(run) == before
