"""The picture of a run: what each message changes in it, and what changes nothing."""

from __future__ import annotations

import pytest

from esper.leyline import commands, contracts as pb
from esper.leyline.kinds import Role
from esper.top import panes
from esper.view.picture import Picture
from esper.view.seeds import Gain, Seeds
from esper.view.wording import told
from tests.sealed import NOW_MS, RUN
from tests.view_kit import Gate, Look, Stage, Status, alarm, beat, command, commit, grown, receipt, said, seed, totals

FOSSILIZE = pb.SeedOperation.SEED_OP_FOSSILIZE


def test_a_round_that_finds_a_rank_deviating_says_how_and_what_becomes_of_it() -> None:
    picture, found = Picture(RUN), commit(7, 1.0).message
    assert isinstance(found, pb.BarrierCommit)
    found.deviating_gradients.append("worker-1")
    found.quarantined.append("worker-1")
    picture.note(said(Role.COORDINATOR, "coordinator", found))

    assert told(found).endswith("gradients of worker-1 deviate, worker-1 is quarantined")
    assert picture.rounds.deviations == 1


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (commands.rollback(0, "a first look"), "roll back to the newest snapshot: a first look"),
        (commands.rollback(80, ""), "roll back to step 80"),
        (commands.breaker("s0", "open", "looks odd"), "breaker s0 open: looks odd"),
        (commands.emergency("halt", "smoke"), "emergency, halt: smoke"),
    ],
)
def test_why_a_command_was_given_stands_behind_a_colon(command: pb.AdaptationCommand, words: str) -> None:
    assert told(command) == words


def test_a_heartbeat_older_than_the_newest_changes_nothing() -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 2_000, seed("s0", Stage.SEED_STAGE_TRAINING), step=20))
    picture.note(beat("worker-0", 1_000, seed("s0", Stage.SEED_STAGE_GERMINATED), step=10))

    assert picture.workers.by_name["worker-0"].beat.step == 20
    assert picture.seeds.by_id["s0"].state.stage == Stage.SEED_STAGE_TRAINING


def test_a_worker_is_silent_evicted_or_ended_and_lives_again_in_another_process() -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, step=5))
    worker = picture.workers.by_name["worker-0"]
    gone = pb.EvictedProcess(worker="worker-0", incarnation=7)
    abort = pb.BarrierAbort(version=1, round=1, roster_generation=1, lease_token=1, evicted=[gone])

    assert worker.state(NOW_MS + 1_000) == "training"
    assert worker.state(NOW_MS + 5_001) == "silent"
    picture.note(said(Role.COORDINATOR, "coordinator", abort, 6_000))
    assert worker.state(NOW_MS + 6_000) == "evicted"
    picture.note(beat("worker-0", 7_000, incarnation=8))
    assert worker.state(NOW_MS + 7_000) == "training"
    picture.note(beat("worker-0", 8_000, incarnation=8, report=pb.WorkerReport(worker="worker-0")))
    assert worker.state(NOW_MS + 60_000) == "ended"


@pytest.mark.parametrize("command_first", [True, False])
def test_a_gate_is_known_whichever_stream_is_read_first(command_first: bool) -> None:
    asked = command("c1", 0, FOSSILIZE, "s0")
    gain = {"mean": 0.2, "low": 0.1, "high": 0.3}
    gate, stage = Gate.SEED_GATE_G4_SYSTEM_IMPACT, Stage.SEED_STAGE_FOSSILIZED
    answer = receipt(asked, "worker-0", 10, Status.RECEIPT_APPLIED, evidence=gain, gate=gate, stage=stage)
    picture = Picture(RUN)
    for message in (asked, answer) if command_first else (answer, asked):
        picture.note(message)

    known = picture.seeds.by_id["s0"]

    assert known.gain == Gain(0.2, 0.1, 0.3)
    assert [(moment.step, moment.gate, moment.passed) for moment in known.moments] == [(108, gate, True)]


def test_a_stage_seen_in_a_heartbeat_and_told_by_a_receipt_is_one_moment_with_its_evidence() -> None:
    asked = command("c1", 0, pb.SeedOperation.SEED_OP_START_GRAFTING, "s0")
    told = {"stage": Stage.SEED_STAGE_BLENDING, "gate": Gate.SEED_GATE_G1_GRADIENT_HEALTH, "evidence": {"steps": 64.0}}
    picture = Picture(RUN)
    for message in (
        asked,
        beat("worker-0", 5, seed("s0", Stage.SEED_STAGE_BLENDING, stage_since_step=108)),
        receipt(asked, "worker-0", 10, Status.RECEIPT_APPLIED, **told),
        receipt(asked, "worker-1", 11, Status.RECEIPT_APPLIED, **told),
    ):
        picture.note(message)

    [moment] = picture.seeds.by_id["s0"].moments

    assert (moment.step, dict(moment.evidence)) == (108, {"steps": 64.0})


def test_an_outcome_that_a_coordinator_tells_counts_for_nothing() -> None:
    asked = command("c1", 0, FOSSILIZE, "s0")
    forged = receipt(asked, "worker-0", 10, Status.RECEIPT_APPLIED).message
    picture = Picture(RUN)
    picture.note(asked)
    picture.note(said(Role.COORDINATOR, "coordinator", forged, 10))

    [order] = picture.orders.newest

    assert (order.status, order.outcomes) == ("published", {})


def test_a_command_is_applied_once_every_rank_has_answered() -> None:
    asked, statuses = command("c1", 0, FOSSILIZE, "s0"), []
    picture = Picture(RUN)
    for message in (
        asked,
        receipt(asked, "coordinator", 1, Status.RECEIPT_ACCEPTED),
        receipt(asked, "worker-0", 2, Status.RECEIPT_APPLIED),
        receipt(asked, "worker-0", 3, Status.RECEIPT_APPLIED),
        receipt(asked, "worker-1", 4, Status.RECEIPT_APPLIED),
    ):
        picture.note(message)
        statuses.append(picture.orders.newest[0].status)

    assert statuses == ["published", "accepted", "accepted", "accepted", "applied"]
    assert picture.orders.num_applied == 1


def test_the_first_decision_of_a_round_counts() -> None:
    picture = Picture(RUN)
    for number, latency_ms in ((1, 10.0), (1, 90.0), (2, 20.0), (3, 30.0)):
        picture.note(commit(number, latency_ms))

    assert picture.rounds.latencies_ms == [10.0, 20.0, 30.0]
    assert (picture.rounds.latency_ms(50), picture.rounds.latency_ms(99)) == (20.0, 30.0)


def test_what_a_leader_says_after_the_next_one_was_announced_counts_for_nothing() -> None:
    next_one = pb.LeaderAnnouncement(version=1, leader="coordinator-2", lease_token=2, time_ns=1)
    gone = pb.EvictedProcess(worker="worker-0", incarnation=7)
    late = pb.BarrierAbort(version=1, round=2, roster_generation=1, lease_token=1, evicted=[gone])
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0))
    for message in (commit(1, 10.0), said(Role.COORDINATOR, "coordinator-2", next_one, 20)):
        picture.note(message)
    picture.note(said(Role.COORDINATOR, "coordinator", late, 30))

    assert (picture.rounds.committed, picture.rounds.aborted, picture.rounds.last_round) == (1, 0, 1)
    assert not picture.workers.by_name["worker-0"].is_evicted


def test_of_more_seeds_than_are_kept_those_go_first_that_are_over_and_were_shown_longest_ago() -> None:
    seeds = Seeds(most=3)
    for at_ms, (name, stage) in enumerate(
        (("a", Stage.SEED_STAGE_TRAINING), ("b", Stage.SEED_STAGE_DORMANT), ("c", Stage.SEED_STAGE_TERMINATED)), 1
    ):
        seeds.note_states("worker-0", [seed(name, stage)], at_ms)
    for at_ms, name in ((10, "d"), (11, "e"), (12, "f")):
        seeds.note_states("worker-0", [seed(name, Stage.SEED_STAGE_TRAINING)], at_ms)

    assert list(seeds.by_id) == ["a", "d", "e", "f"]  # none that lives is forgotten


def test_tiers_flow_as_fast_as_their_totals_grow() -> None:
    picture = Picture(RUN)
    for second in range(5):
        told = totals(64_000 + 640 * second, 2_000 + 20 * second, 60 + 2 * second)
        picture.look(Look(NOW_MS + 1_000 * second, told))

    assert [picture.flow.per_s(tier) for tier in ("packets", "regional", "global")] == [640.0, 20.0, 2.0]
    assert picture.flow.reductions == (66_560 / 2_080, 2_080 / 68)


@pytest.mark.parametrize("junk", [{b"counted": b"many"}, {b"aggregate": b"\xff"}])
def test_totals_that_nobody_can_read_leave_the_last_ones_and_are_not_taken_for_new(junk: dict[bytes, bytes]) -> None:
    picture = Picture(RUN)
    for at_ms, fields in enumerate((totals(64, 2, 1), junk)):
        picture.look(Look(NOW_MS + at_ms, fields))

    assert (picture.flow.totals.counted, picture.flow.is_known) == (64, False)


def test_a_breaker_is_open_for_its_time_and_half_open_after_it() -> None:
    picture = Picture(RUN)
    for at_ms in (0, 1_000):
        picture.note(alarm("worker-0", at_ms, breaker="kernel", reason="ten failures", open_s="30"))
    picture.note(alarm("worker-1", 0, breaker="kernel", reason="by an older version"))

    told, untold = picture.alarms.breakers.values()

    assert (told.times, told.state(NOW_MS + 30_999), told.state(NOW_MS + 31_000)) == (2, "open", "half-open")
    assert untold.state(NOW_MS) == "opened"


def test_what_several_count_and_answer_of_one_command_is_rejected_once() -> None:
    asked = command("c1", 0, FOSSILIZE, "s0")
    picture = Picture(RUN)
    picture.note(receipt(asked, "coordinator", 1, Status.RECEIPT_REJECTED, reason=pb.ReasonCode.REASON_REPLAYED))
    counts = {"commands": {"replayed": 1, "bad_seal": 2}, "votes": {"bad_seal": 1}}
    picture.look(Look(refused=counts))

    assert picture.rejected == {"replayed": 1, "bad_seal": 3}


def test_lags_are_those_of_the_groups_of_a_worker_and_unknown_where_one_is() -> None:
    picture = Picture(RUN)
    for worker in ("worker-0", "worker-1"):
        picture.note(beat(worker, 0))
    lags: dict[tuple[str, str], int | None] = {("commands", "worker-0"): 2, ("decisions", "worker-0"): 1}
    lags |= {("emergency", "worker-0"): 9, ("commands", "worker-1"): None}  # the first is for people
    picture.look(Look(lags=lags))

    assert [worker.lag for worker in picture.workers.ordered] == [3, None]


def test_the_last_words_of_a_worker_tell_the_history_that_nobody_else_told() -> None:
    record = pb.StageRecord(stage=Stage.SEED_STAGE_TRAINING, step=40, passed=True)
    gain = pb.PairedGain(mean=0.5, low=0.4, high=0.6, examples=9, batches=1)
    told = pb.SeedReport(seed_id="s0", stage=Stage.SEED_STAGE_TRAINING, history=[record], paired_gain=gain)
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, report=pb.WorkerReport(worker="worker-0", seeds=[told])))

    known = picture.seeds.by_id["s0"]

    assert [(moment.step, moment.stage) for moment in known.moments] == [(40, Stage.SEED_STAGE_TRAINING)]
    assert known.gain == Gain(0.5, 0.4, 0.6)


def test_a_run_read_a_second_time_gives_the_same_orders_seeds_and_rounds() -> None:
    picture = grown()
    before = ([order.status for order in picture.orders.newest], picture.seeds.ordered[1].moments, picture.rejected)
    again = command("c1", 1_000, pb.SeedOperation.SEED_OP_START_GRAFTING, "lora")

    picture.note(again)
    picture.note(commit(50, 1.0))

    after = ([order.status for order in picture.orders.newest], picture.seeds.ordered[1].moments, picture.rejected)
    assert after == before
    assert picture.rounds.committed == 100


def test_a_seed_is_shown_by_the_first_worker_that_goes_on() -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, seed("s0", Stage.SEED_STAGE_TRAINING, alpha=0.0)))
    picture.note(beat("worker-1", 100, seed("s0", Stage.SEED_STAGE_TRAINING, alpha=0.5)))
    before = picture.seeds.by_id["s0"].state.alpha
    picture.note(beat("worker-1", 6_000, seed("s0", Stage.SEED_STAGE_BLENDING, alpha=0.5)))

    assert (before, picture.seeds.by_id["s0"].state.alpha) == (0.0, 0.5)


def test_a_command_from_before_the_first_answer_read_is_not_told_as_unanswered() -> None:
    picture = Picture(RUN)
    old, new = command("c1", 0, FOSSILIZE, "s0"), command("c2", 1_000, FOSSILIZE, "s0")
    picture.note(receipt(new, "coordinator", 1_010, Status.RECEIPT_ACCEPTED))
    for message in (old, new):
        picture.note(message)

    assert [order.command_id for order in picture.orders.newest] == ["c2"]


def test_a_command_whose_answers_were_trimmed_is_not_told_as_unanswered() -> None:
    picture = Picture(RUN)
    old, new = command("c1", 0, FOSSILIZE, "s0"), command("c2", 1_000, FOSSILIZE, "s0")
    adjusted = pb.OptimizerCommand(
        version=1, command_id="c3", optimizer_id="s0", command_type=pb.OptimizerCommandType.OPTIMIZER_COMMAND_STEP
    )
    of_optimizer = said(Role.OPTIMIZER, "controller", adjusted, 10)
    for message in (commit(1, 2.0, judged=of_optimizer.entry_id), commit(2, 2.0, judged=new.entry_id)):
        picture.note(message)
    for message in (old, of_optimizer, new):
        picture.note(message)

    assert [order.command_id for order in picture.orders.newest] == ["c2"]
    assert picture.orders.num_untold == 2


def test_no_command_is_not_said_of_those_whose_answers_were_trimmed() -> None:
    picture, trimmed = Picture(RUN), command("c1", 0, FOSSILIZE, "s0")
    before = panes.orders(picture, 80, None).empty
    picture.note(commit(1, 2.0, judged=trimmed.entry_id))
    picture.note(trimmed)

    pane = panes.orders(picture, 80, None)

    assert (before, pane.empty, pane.rows) == ("no command so far", "none lately", [])


def test_a_seed_that_germinates_anew_begins_without_the_gate_and_the_gain_of_its_former_life() -> None:
    first = command("c1", 0, pb.SeedOperation.SEED_OP_GERMINATE, "s0", "head")
    held = command("c2", 1_000, FOSSILIZE, "s0")
    again = command("c3", 2_000, pb.SeedOperation.SEED_OP_GERMINATE, "s0", "head")
    born = {"stage": Stage.SEED_STAGE_GERMINATED}
    lost = {"mean": -0.2, "low": -0.3, "high": -0.1}
    g4 = {"gate": Gate.SEED_GATE_G4_SYSTEM_IMPACT, "stage": Stage.SEED_STAGE_CULLED, "evidence": lost, "step": 90}
    picture, told = Picture(RUN), []
    for message in (
        *(first, receipt(first, "worker-0", 10, Status.RECEIPT_APPLIED, step=10, **born)),
        *(held, receipt(held, "worker-0", 1_010, Status.RECEIPT_FAILED, **g4)),
        *(again, receipt(again, "worker-0", 2_010, Status.RECEIPT_APPLIED, step=200, **born)),
    ):
        picture.note(message)
        known = picture.seeds.by_id.get("s0")
        told.append(known and (known.gain, known.last_gate and known.last_gate.step))

    assert told[-3] == (Gain(-0.2, -0.3, -0.1), 90)
    assert told[-1] == (None, None)


def test_a_gain_read_late_does_not_replace_a_newer_one() -> None:
    orders = [command(f"c{number}", number, FOSSILIZE, "s0") for number in (1, 2)]
    picture = Picture(RUN)
    for order, step in zip(orders, (400, 100), strict=True):
        gain = {"mean": step / 1_000, "low": 0.0, "high": 1.0}
        told = {"gate": Gate.SEED_GATE_G4_SYSTEM_IMPACT, "evidence": gain, "step": step}
        picture.note(order)
        picture.note(receipt(order, "worker-0", 1_000, Status.RECEIPT_FAILED, **told))

    assert picture.seeds.by_id["s0"].gain == Gain(0.4, 0.0, 1.0)


def test_a_process_that_goes_on_from_a_checkpoint_has_not_run_the_steps_before_it() -> None:
    picture = Picture(RUN)
    for at_ms, step in ((0, 1), (500, 1), (1_000, 501), (2_000, 511)):  # it says 1 until it has gone back
        picture.note(beat("worker-0", at_ms, step=step))

    assert picture.workers.by_name["worker-0"].steps_per_s(picture.now_ms) == pytest.approx(10.0)


@pytest.mark.parametrize("open_s", ["inf", "1e999", "nan", "a while"])
def test_a_breaker_whose_time_is_no_number_of_seconds_is_told_as_opened(open_s: str) -> None:
    picture = Picture(RUN)
    picture.note(alarm("worker-0", 0, breaker="kernel", open_s=open_s))

    [breaker] = picture.alarms.breakers.values()

    assert (breaker.open_ms, breaker.state(NOW_MS + 1)) == (None, "opened")
