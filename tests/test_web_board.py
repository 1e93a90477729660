"""What a page shows of a run: decisions with their signatures, seeds with their evidence, and only what changed."""

from __future__ import annotations

import json

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Opened, Sealer
from tests.rounds import optimizer
from tests.sealed import MASTER, NOW_MS, RUN
from tests.view_kit import Gate, Look, Stage, Status, alarm, beat, command, commit, receipt, said, seed, totals
from tests.web_kit import board, site, visiting

Optimizer = pb.OptimizerCommandType
GRAFT = pb.SeedOperation.SEED_OP_START_GRAFTING
HOSTILE = "<img src=x onerror=alert(1)>"
GAIN = {"mean": 0.2, "low": 0.15, "high": 0.25, "examples": 512.0}


def unsigned(opened: Opened) -> Opened:
    """The same command, signed by a key that is not the controller's; the seal is right."""
    foreign = MasterKeyring.new(NOW_MS * 1_000_000).derive(RUN, [Role.CONTROLLER])
    keys = MASTER.derive(RUN, [Role.CONTROLLER])
    keys._signing = {place: next(iter(foreign._signing.values())) for place in keys._signing}
    sealer = Sealer(keys, Role.CONTROLLER, "somebody", clock_ns=lambda: NOW_MS * 1_000_000)
    return opened._replace(sealed=sealer.seal(opened.message))


def test_a_decision_shows_who_sealed_it_and_whether_that_holds() -> None:
    of = board()
    good, forged = command("c1", 0, GRAFT, "s0"), unsigned(command("c2", 1, GRAFT, "s1"))
    for each in (good, forged, said(Role.COORDINATOR, "coordinator", leader(), 2)):
        of.note(each)
    of.refuse(
        f"esper:{{{RUN}}}:commands", f"{NOW_MS + 3}-0", b"junk", RefusedError(pb.ReasonCode.REASON_BAD_SEAL, "no")
    )
    of.refuse(
        f"esper:{{{RUN}}}:commands", f"{NOW_MS + 4}-0", good.sealed, RefusedError(pb.ReasonCode.REASON_REPLAYED, "")
    )

    rows = of.everything()["rows"]

    expected = ["verified", "unsigned", "sealed", "refused", "refused"]
    assert [row["seal"]["standing"] for row in rows] == expected
    assert (rows[0]["seal"]["role"], rows[0]["seal"]["producer"]) == ("controller", "controller")
    assert rows[0]["seal"]["key"] == f"{good.header.key_id:08x}"
    assert "did not sign" in rows[1]["seal"]["detail"]
    assert rows[3]["seal"]["producer"] == "" and rows[3]["what"] == "bad_seal"
    assert rows[4]["seal"]["producer"] == "controller" and rows[4]["what"] == "replayed"


def leader() -> pb.LeaderAnnouncement:
    return pb.LeaderAnnouncement(version=1, leader="coordinator", lease_token=1, time_ns=1)


def test_a_flood_of_junk_displaces_no_decision_and_is_counted() -> None:
    of = board()
    of.note(command("c1", 0, GRAFT, "s0"))
    for number in range(3_000):
        error = RefusedError(pb.ReasonCode.REASON_MALFORMED, "junk")
        of.refuse(f"esper:{{{RUN}}}:commands", f"{NOW_MS + 1}-{number}", b"x", error)

    whole = of.everything()
    rows, kept = whole["rows"], whole["kept"]

    assert rows[0]["what"] == "start grafting s0" and len(rows) == 1 + kept["rows"]["refused"]
    assert kept == {"rows": {"decided": 2_000, "empty": 200, "refused": 200}, "lines": 34, "points": 2_000}
    assert of.timeline.num_refused == 3_000


def test_only_what_changed_is_said_again() -> None:
    of = board()
    graft = command("c1", 0, GRAFT, "s0")
    of.note(graft)
    of.note(beat("worker-0", 1, seed("s0", Stage.SEED_STAGE_TRAINING), step=10))
    assert {"head", "workers", "seeds", "rows", "lines"} <= of.changes().keys()
    assert of.changes() == {}

    of.note(receipt(graft, "coordinator", 2, Status.RECEIPT_REJECTED, reason=pb.ReasonCode.REASON_EMBARGOED))
    changed = of.changes()

    assert "lines" not in changed and "workers" not in changed and "seeds" not in changed
    [row] = changed["rows"]
    assert row["status"] == "rejected" and row["answers"][0]["reason"] == "embargoed"


def test_an_entry_that_was_refused_shows_what_the_coordinator_answered_later() -> None:
    of = board()
    graft = command("c1", 0, GRAFT, "s0")
    error = RefusedError(pb.ReasonCode.REASON_STALE, "old")
    of.refuse(f"esper:{{{RUN}}}:commands", graft.entry_id, graft.sealed, error)
    of.note(receipt(graft, "coordinator", 2, Status.RECEIPT_REJECTED, reason=pb.ReasonCode.REASON_STALE))

    [row] = of.everything()["rows"]

    assert row["seal"]["standing"] == "refused" and row["status"] == "rejected"


def test_a_refused_entry_shows_no_answer_to_a_command_under_the_same_id_elsewhere() -> None:
    of = board()
    graft = command("c1", 0, GRAFT, "s0")
    error = RefusedError(pb.ReasonCode.REASON_BAD_SEAL, "forged")
    of.refuse(f"esper:{{{RUN}}}:decisions", graft.entry_id, b"before", error)
    of.note(graft)
    for stream in ("decisions", "optimizer"):
        of.refuse(f"esper:{{{RUN}}}:{stream}", graft.entry_id, b"after", error)
    of.note(receipt(graft, "coordinator", 2, Status.RECEIPT_ACCEPTED))

    told = {row["id"].partition("/")[0]: (row["status"], len(row["answers"])) for row in of.everything()["rows"]}

    assert told == {"commands": ("accepted", 1), "decisions": ("", 0), "optimizer": ("", 0)}


def test_a_copy_of_what_was_sealed_is_refused_and_raises_no_second_alarm() -> None:
    of = board()
    first = alarm("worker-1", 0, breaker="kernel", reason="ten failures")
    graft, led = command("c1", 1, GRAFT, "s0"), said(Role.COORDINATOR, "coordinator", leader(), 2)
    for each in (first, graft, led):
        of.note(each)
        of.note(each)
    for number, each in enumerate((first, graft, led)):
        of.note(each._replace(entry_id=f"{NOW_MS + 10 + number}-0"))

    whole = of.everything()

    standings = [(row["seal"]["standing"], row["what"]) for row in whole["rows"]]
    assert [standing for standing, _ in standings] == ["sealed", "verified", "sealed", "refused", "refused", "refused"]
    assert {what for _, what in standings[3:]} == {"replayed"}
    assert f"start grafting s0, which lies in entry {graft.entry_id} already" in whole["rows"][4]["seal"]["detail"]
    [breaker] = whole["alarms"]["breakers"]
    assert breaker["times"] == len(whole["alarms"]["signals"]) == 1
    assert breaker["opened_ms"] == NOW_MS


def test_what_a_leader_says_after_the_next_was_announced_is_told_as_void() -> None:
    of = board()
    announced, late, held = leader(), commit(7, 1.0).message, commit(7, 2.0).message
    assert isinstance(late, pb.BarrierCommit) and isinstance(held, pb.BarrierCommit)
    announced.lease_token = held.lease_token = 2
    late.deviating.append("worker-0")
    held.deviating.append("worker-1")
    decisions = [said(Role.COORDINATOR, "coordinator", each, at) for at, each in enumerate((announced, late, held))]
    for each in (*decisions, decisions[1]):
        of.note(each)

    told = [row["what"].partition(": ")[0] for row in of.everything()["rows"]]

    assert told[1] == "void, as another one leads" and "void" not in told[0] + told[2]


def test_what_became_of_commands_older_than_the_answers_read_is_not_known() -> None:
    of = board()
    old, new, waiting = (command(f"c{number}", number, GRAFT, f"s{number}") for number in range(3))
    for each in (old, new, waiting, receipt(new, "coordinator", 9, Status.RECEIPT_REJECTED)):
        of.note(each)

    whole = of.everything()

    assert [row["status"] for row in whole["rows"]] == ["unknown", "rejected", "published"]
    assert (whole["head"]["published"], whole["head"]["untold"]) == (3, 1)


def test_rounds_are_told_with_the_moment_from_which_on_they_were_read() -> None:
    of = board()
    for number in (7, 8):
        of.note(commit(number, 1.0))

    assert of.everything()["flow"]["rounds"]["since_ms"] == NOW_MS + 7


def test_commands_that_wait_for_their_answers_are_all_known_however_many() -> None:
    of = board()
    asked = [command(f"c{number}", number, GRAFT, f"s{number}") for number in range(600)]
    for each in asked:
        of.note(each)
    for each in asked:
        of.note(receipt(each, "worker-0", 1_000, Status.RECEIPT_APPLIED, stage=Stage.SEED_STAGE_BLENDING))

    whole = of.everything()

    assert whole["head"]["published"] == 600
    assert len(whole["seeds"]) == 600 and all(row["num_moments"] == 1 for row in whole["seeds"])
    assert all(len(row["answers"]) == 1 for row in whole["rows"])


def test_an_answer_to_an_entry_that_no_stream_has_changes_no_other() -> None:
    of = board()
    graft = command("c1", 0, GRAFT, "s0")
    of.note(graft)
    forged = pb.CommandReceipt(version=1, command_id="c1", entry_id=f"{NOW_MS}-7", worker="worker-0", step=1)
    forged.status = Status.RECEIPT_APPLIED
    of.note(said(Role.WORKER, "worker-0", forged, 1))
    of.note(receipt(graft, "coordinator", 2, Status.RECEIPT_ACCEPTED))

    [row] = of.everything()["rows"]

    assert row["status"] == "accepted" and [answer["worker"] for answer in row["answers"]] == ["coordinator"]


def test_commands_of_one_millisecond_on_two_streams_have_their_own_answers() -> None:
    of = board()
    asked = command("c1", 0, GRAFT, "s0")
    adopted = said(Role.OPTIMIZER, "controller", optimizer(Optimizer.OPTIMIZER_COMMAND_INITIALIZE_HOST))
    assert asked.entry_id == adopted.entry_id
    for each in (asked, adopted):
        of.note(each)
    of.note(receipt(asked, "coordinator", 2, Status.RECEIPT_REJECTED, reason=pb.ReasonCode.REASON_EMBARGOED))
    of.note(receipt(adopted, "coordinator", 3, Status.RECEIPT_ACCEPTED))

    whole = of.everything()

    assert [(row["what"], row["status"]) for row in whole["rows"]] == [
        ("start grafting s0", "rejected"),
        ("optimizer of host: initialize host", "accepted"),
    ]
    assert whole["head"]["published"] == 2


def test_rounds_in_which_nothing_was_decided_are_told_apart() -> None:
    of = board()
    of.note(commit(1, 12.5))

    [row] = of.everything()["rows"]

    assert row["empty"] and row["step"] == 108
    assert of.everything()["lines"]["latency"] == {"proposal to commit": [[NOW_MS / 1000 + 0.001], [12.5]]}


async def test_a_seeds_page_has_its_gates_with_evidence_and_its_gain_with_the_interval() -> None:
    of = board()
    keep = command("c1", 0, pb.SeedOperation.SEED_OP_FOSSILIZE, HOSTILE)
    of.note(keep)
    told = {"stage": Stage.SEED_STAGE_FOSSILIZED, "gate": Gate.SEED_GATE_G4_SYSTEM_IMPACT, "evidence": GAIN}
    of.note(receipt(keep, "worker-0", 5, Status.RECEIPT_APPLIED, **told))

    async with visiting(site(of)) as client:
        answer = await client.get("/api/seed", params={"id": HOSTILE})
        missing = await client.get("/api/seed", params={"id": "no such"})

    page = answer.json()
    assert page["id"] == HOSTILE and page["gain"] == {"mean": 0.2, "low": 0.15, "high": 0.25}
    [moment] = page["moments"]
    assert moment["gate"] == "G4_SYSTEM_IMPACT" and moment["passed"] and moment["evidence"] == GAIN
    assert answer.headers["content-type"] == "application/json"
    assert missing.status_code == 404 and "no such" in missing.json()["error"]


def test_totals_that_cannot_be_read_are_not_shown_as_none() -> None:
    of = board()
    of.look(Look(totals=None))
    before = of.everything()["flow"]
    of.look(Look(totals=totals(64, 2, 1)))
    after = of.everything()["flow"]

    assert [tier["count"] for tier in before["tiers"]] == [None] * 3 and before["shed"] is None
    assert [tier["count"] for tier in after["tiers"]] == [64, 2, 1] and after["shed"] == 0


def test_what_was_not_measured_is_null_and_all_of_it_is_json() -> None:
    of, nan = board(), float("nan")
    of.note(beat("worker-0", 0, seed("s0", Stage.SEED_STAGE_TRAINING), step=1, loss=nan, accuracy=nan))

    whole = of.everything()

    assert whole["workers"][0]["loss"] is None and whole["workers"][0]["accuracy"] is None
    assert whole["seeds"][0]["gain"] is None and whole["lines"]["loss"] == {}
    assert json.loads(json.dumps(whole, allow_nan=False)) == whole
