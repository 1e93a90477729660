"""`esper audit` tells who signed what with which key, how it was answered, and what was rejected of whom."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from esper.bus import connect, names
from esper.bus.group.delivery import Delivery
from esper.bus.group.settlement import Settlement, obituary, reject_spent
from esper.cli.main import app
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.archive import Entry
from esper.leyline.digest import barrier_digest
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.log_kit import ADOPT, GERMINATE, NOW_MS, Writer, toy


def audited(*words: str | Path, status: int = 0) -> list[dict[str, Any]]:
    """Rows of `esper audit --json`."""
    result = CliRunner().invoke(app, ["audit", *map(str, words), "--json"])
    assert result.exit_code == status, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def of(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["row"] == kind]


def test_each_command_is_told_with_its_signer_its_key_and_its_receipts(tmp_path: Path) -> None:
    run = toy()
    [key] = {f"{validity.key_id:08x}" for validity in run.keyring.validities}

    deeds = of(audited(run.save(tmp_path / "run.jsonl")), "deed")
    command = next(deed for deed in deeds if deed["stream"] == "commands")
    adopt = next(deed for deed in deeds if deed["stream"] == "optimizer")

    assert command == {
        **{"row": "deed", "entry_id": run.book.streams["commands"][0].entry_id, "stream": "commands"},
        **{"role": "controller", "producer": "controller", "key_id": key, "proof": "signed"},
        **{"what": "germinate s0 at head from lora (rank=4)", "issued_by": "", "command_id": GERMINATE.command_id},
        **{"verdict": "accepted before step 10", "applied": {"worker-0": 10, "worker-1": 10}, "failed": {}},
        **{"became": {}, "at": "2023-11-14T22:13:20.003+00:00"},
    }
    assert (adopt["role"], adopt["proof"], adopt["command_id"]) == ("optimizer", "sealed", ADOPT.command_id)
    assert [deed["what"] for deed in deeds if deed["stream"] == "decisions"] == [
        "round 1 before step 10, 1 command",
        "round 2 before step 30, 1 command",
    ]


def test_each_signer_is_told_with_what_it_sealed_and_between_which_times(tmp_path: Path) -> None:
    run = toy()

    signers = of(audited(run.save(tmp_path / "run.jsonl")), "signer")

    assert {(one["role"], one["producer"]): one["kinds"] for one in signers} == {
        ("controller", "controller"): {"AdaptationCommand": 1},
        ("optimizer", "controller"): {"OptimizerCommand": 1},
        ("coordinator", "coordinator"): {"BarrierProposal": 2, "BarrierCommit": 2, "CommandReceipt": 2},
        ("worker", "worker-0"): {"RunRecord": 2, "CommandReceipt": 2},
        ("worker", "worker-1"): {"RunRecord": 2, "CommandReceipt": 2},
    }
    assert {one["first"] for one in signers if one["producer"] == "worker-0"} == {"2023-11-14T22:13:20.001+00:00"}


def test_a_round_that_sends_a_rank_away_is_a_deed(tmp_path: Path) -> None:
    run = Writer()
    for number, quarantined in ((1, []), (2, ["worker-1"])):
        told = pb.BarrierCommit(version=1, round=number, digest=bytes(32), lease_token=1, quarantined=quarantined)
        run.say("decisions", Role.COORDINATOR, "coordinator", told)

    [deed] = of(audited(run.save(tmp_path / "run.jsonl")), "deed")

    assert deed["what"] == "round 2 before step 0, worker-1 is quarantined"


def test_what_a_policy_asked_for_is_told_with_what_came_of_it(tmp_path: Path) -> None:
    run = toy(ended=False)
    seeds = {"kept": pb.SeedLifecycleStage.SEED_STAGE_FOSSILIZED, "held": pb.SeedLifecycleStage.SEED_STAGE_PROBATIONARY}
    asked = [pb.SeedRequest(seed_id=seed, operation=pb.SeedOperation.SEED_OP_FOSSILIZE) for seed in (*seeds, "late")]
    decided = pb.BarrierCommit(version=1, round=3, roster_generation=1, effective_step=40, requests=asked)
    decided.digest = barrier_digest(40, [], asked)
    run.say("decisions", Role.COORDINATOR, "coordinator", decided)
    outcomes = [
        pb.CommandReceipt(version=1, command_id=seed, worker="worker-0", step=40, stage=stage)
        for seed, stage in seeds.items()
    ]
    outcomes[0].status, outcomes[1].status = pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED
    outcomes[1].reason, outcomes[1].detail = pb.ReasonCode.REASON_GATE_FAILED, "low is -0.1, expected above 0"
    run.record(0, judged=pb.RoundJudged(round=3, outcomes=outcomes))
    log = run.save(tmp_path / "run.jsonl")

    [deed] = [row for row in of(audited(log), "deed") if row["became"]]
    told = CliRunner().invoke(app, ["audit", str(log)]).output

    assert deed["became"] == {
        "kept": "now FOSSILIZED",
        "held": "failed (gate_failed: low is -0.1, expected above 0)",
        "late": "unanswered",
    }
    assert "kept now FOSSILIZED, held failed (gate_failed: low is -0.1, expected above 0), late unanswered" in told


def test_since_leaves_out_what_is_older_and_keeps_its_answers(tmp_path: Path) -> None:
    run = toy()
    path = run.save(tmp_path / "run.jsonl")
    second = run.book.streams["optimizer"][0].entry_id

    deeds = of(audited(path, "--since", run.book.streams["receipts"][4].entry_id), "deed")
    none = audited(path, "--since", "1d")

    assert deeds[0]["entry_id"] == second
    assert deeds[0]["applied"] == {"worker-0": 30, "worker-1": 30}
    assert none == []


def test_a_command_that_its_controller_did_not_sign_ends_in_status_1(tmp_path: Path) -> None:
    run = Writer()
    path = tmp_path / "controller.json"
    run.master.derive(run.book.run_id, [Role.CONTROLLER]).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "private": []}))  # as whoever opens commands holds it
    forger = Sealer(RoleKeyring.load(path), Role.CONTROLLER, "controller", clock_ns=lambda: NOW_MS * 1_000_000)
    run.book.streams["commands"].append(Entry("commands", f"{NOW_MS}-0", forger.seal(GERMINATE)))

    [deed] = of(audited(run.save(tmp_path / "run.jsonl"), status=1), "deed")

    assert (deed["proof"], deed["verdict"]) == ("unsigned", "unanswered")


def test_with_public_keys_alone_seals_are_claims_and_signatures_are_checked(tmp_path: Path) -> None:
    run = toy()
    path, keys = run.save(tmp_path / "run.jsonl"), run.keyring
    RoleKeyring(keys.run_id, (), keys.validities, {}, {}, keys.public_keys).save(tmp_path / "public.json")

    deeds = of(audited(path, "--keyring", tmp_path / "public.json"), "deed")
    said = CliRunner().invoke(app, ["audit", str(path), "--keyring", str(tmp_path / "public.json")]).stdout

    assert {(deed["stream"], deed["proof"]) for deed in deeds} == {
        *(("commands", "signed"), ("optimizer", "claimed"), ("decisions", "claimed"))
    }
    assert "no keyring with secrets: seals are not checked" in said


def rejected(command: str, entry_id: str, reason: int) -> pb.CommandReceipt:
    return pb.CommandReceipt(
        version=1,
        command_id=command,
        entry_id=entry_id,
        status=pb.ReceiptStatus.RECEIPT_REJECTED,
        reason=reason,  # type: ignore[arg-type]
        worker="coordinator",
    )


async def test_what_was_rejected_of_a_live_run_is_told_by_source_and_reason(
    redis: connect.Redis, redis_url: str, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy(run_id)
    refused = run.say("commands", Role.CONTROLLER, "controller", GERMINATE)
    stale = pb.ReasonCode.REASON_STALE
    run.say("receipts", Role.COORDINATOR, "coordinator", rejected("s0-1", refused.entry_id, stale))
    for entry in run.book.entries:
        await redis.execute_command("XADD", names.key(run_id, entry.stream), entry.entry_id, "m", entry.sealed)
    commands, dead = names.key(run_id, "commands"), names.key(run_id, "dead")
    for group in ("coordinator", "worker-0"):  # each of them has refused the same entry
        twice = Delivery(commands, group, refused.entry_id, refused.sealed, 1, "c")
        await letter(redis, dead, obituary(twice, RefusedError(stale, "old"), None))
    for number in range(3):
        junk = Delivery(commands, "coordinator", f"{NOW_MS + number}-7", b"junk", 1, "c")
        await letter(redis, dead, obituary(junk, RefusedError(pb.ReasonCode.REASON_MALFORMED, "junk"), None))
    vote = run.sealer(Role.WORKER, "worker-1").seal(pb.BarrierVote(version=1, worker="worker-1", round=1))
    spent = Settlement()
    reject_spent(spent, Delivery(names.key(run_id, "votes"), "coordinator", f"{NOW_MS + 50}-0", vote, 6, "c"))
    await letter(redis, dead, dict(spent.dead[0].fields))
    run.keyring.save(tmp_path / "observer.json")
    monkeypatch.setenv("ESPER_REDIS_URL", redis_url)
    monkeypatch.setenv("ESPER_KEYRING", str(tmp_path / "observer.json"))

    rows = of(await asyncio.to_thread(audited, run_id, "--runs-dir", tmp_path), "rejected")

    found = {(row["stream"], row["reason"]): (row["count"], row["source"], row["proven"]) for row in rows}
    assert found == {
        ("commands", "malformed"): (3, "", False),
        ("commands", "stale"): (1, "controller/controller", True),
        ("votes", "poison"): (1, "worker/worker-1", True),
    }
    assert (rows[0]["first"], rows[0]["last"]) == ("2023-11-14T22:13:20.000+00:00", "2023-11-14T22:13:20.002+00:00")


async def test_a_letter_with_a_time_that_is_none_is_told_with_the_rest(
    redis: connect.Redis, redis_url: str, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = toy(run_id)
    for entry in run.book.entries:
        await redis.execute_command("XADD", names.key(run_id, entry.stream), entry.entry_id, "m", entry.sealed)
    number = "9" * 19
    forged = {b"stream": names.key(run_id, "votes").encode(), b"entry_id": number.encode(), b"reason": b"malformed"}
    await letter(redis, names.key(run_id, "dead"), forged)
    run.keyring.save(tmp_path / "observer.json")
    monkeypatch.setenv("ESPER_REDIS_URL", redis_url)
    monkeypatch.setenv("ESPER_KEYRING", str(tmp_path / "observer.json"))

    rows = await asyncio.to_thread(audited, run_id, "--runs-dir", tmp_path)

    assert [row["first"] for row in of(rows, "rejected")] == [f"{number} ms"]
    assert len(of(rows, "deed")) == 4


def test_commands_of_one_millisecond_on_two_streams_have_their_own_verdicts(tmp_path: Path) -> None:
    run = Writer()
    asked = run.say("commands", Role.CONTROLLER, "controller", GERMINATE)
    adopted = Entry("optimizer", asked.entry_id, run.sealer(Role.OPTIMIZER, "controller").seal(ADOPT))
    run.book.streams["optimizer"].append(adopted)
    stale = rejected(GERMINATE.command_id, asked.entry_id, pb.ReasonCode.REASON_STALE)
    run.say("receipts", Role.COORDINATOR, "coordinator", stale)
    run.decide(1, adopted, ADOPT.command_id, 10)

    rows = audited(run.save(tmp_path / "run.jsonl"))

    verdicts = {deed["stream"]: deed["verdict"] for deed in of(rows, "deed") if deed["stream"] != "decisions"}
    assert verdicts == {"commands": "rejected (stale)", "optimizer": "accepted before step 10"}
    assert [(row["stream"], row["reason"], row["count"]) for row in of(rows, "rejected")] == [("commands", "stale", 1)]


async def letter(redis: connect.Redis, stream: str, fields: dict[bytes, bytes]) -> None:
    await redis.execute_command("XADD", stream, "*", *(part for pair in fields.items() for part in pair))
