"""The report of a finished run: one file that runs nothing, asks nobody, and tells what an audit found."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from esper.bus import connect, names
from esper.cli.main import app
from esper.leyline import contracts as pb
from esper.leyline.archive import Entry
from esper.leyline.kinds import Role
from esper.runtime.history import report_store
from esper.view.curves import Curves
from esper.web.report import plots
from tests.altered import altered
from tests.log_kit import GERMINATE, REPORT, WORKERS, Writer, began, toy
from tests.rounds import seed_command
from tests.scripted import ScriptedRun
from tests.view_kit import beat, seed
from tests.web_kit import give_observer

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>'[:60]
GAIN = {"mean": 0.25, "low": 0.125, "high": 0.5, "examples": 512.0}
Stage = pb.SeedLifecycleStage
APPLIED = pb.ReceiptStatus.RECEIPT_APPLIED


def grown(seed_id: str) -> Writer:
    """A run in which one seed was germinated and told of at the end."""
    writer = Writer()
    for rank in range(2):
        writer.record(rank, began=began())
    germinate = pb.SeedOperation.SEED_OP_GERMINATE
    command = seed_command(germinate, site="head", blueprint="lora", parameters={"rank": 4})
    command.seed_command.seed_id = seed_id
    writer.decide(1, writer.say("commands", Role.CONTROLLER, "controller", command), command.command_id, 10)
    gate = pb.SeedLifecycleGate.SEED_GATE_G4_SYSTEM_IMPACT
    record = pb.StageRecord(stage=Stage.SEED_STAGE_FOSSILIZED, step=30, gate=gate, passed=True, evidence=GAIN)
    gain = pb.PairedGain(mean=0.25, low=0.125, high=0.5, examples=512, batches=4)
    seed = pb.SeedReport(
        seed_id=seed_id, site="head", blueprint_id="lora", stage=Stage.SEED_STAGE_FOSSILIZED, history=[record]
    )
    seed.paired_gain.CopyFrom(gain)
    for rank, worker in enumerate(WORKERS):
        report = pb.WorkerReport()
        report.CopyFrom(REPORT)
        report.worker = worker
        report.seeds.append(seed)
        writer.record(rank, ended=pb.RunEnded(report=report, round_applied=1))
    return writer


def reported(log: Path, out: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["report", str(log), "--out", str(out), *options])
    return result.exit_code, out.read_text() if out.is_file() else result.output


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)).split())


def test_it_tells_of_seeds_decisions_signatures_and_the_audit(tmp_path: Path) -> None:
    log = grown("s0").save(tmp_path / "run.jsonl")

    status, page = reported(log, tmp_path / "report.html")

    told = text_of(page)
    assert status == 0
    assert "every seal and 1 signatures checked: 0 findings" in told
    assert "germinate s0 at head from lora (rank=4)" in told and "verified" in told
    assert "Paired gain 0.25 [0.125, 0.5]" in told and "G4_SYSTEM_IMPACT passed" in told
    assert "40 steps in 0 epochs on 2 workers" in told and "equal on all ranks" in told
    assert "seeds 1 fossilized; held-out loss lower by 0.25 (s0) commands" in told


def test_it_runs_nothing_and_asks_no_other_host_whatever_a_seed_is_called(tmp_path: Path) -> None:
    log = grown(HOSTILE).save(tmp_path / "run.jsonl")

    _, page = reported(log, tmp_path / "report.html")

    assert HOSTILE in text_of(page)
    assert "<script" not in page and "<img" not in page
    assert not re.search(r"(?:src|href)=\"(?!#)", page) and "@import" not in page and "url(" not in page
    assert "default-src 'none'" in page


def test_of_a_run_that_was_cut_off_it_tells_what_commands_and_answers_say(tmp_path: Path) -> None:
    writer = Writer()
    command = seed_command(pb.SeedOperation.SEED_OP_GERMINATE, site="head", blueprint="lora", parameters={"rank": 4})
    command.seed_command.seed_id = "s0"
    entry = writer.say("commands", Role.CONTROLLER, "controller", command)
    answer = pb.CommandReceipt(version=1, command_id=command.command_id, entry_id=entry.entry_id, worker="worker-0")
    answer.status, answer.step, answer.stage = APPLIED, 10, Stage.SEED_STAGE_GERMINATED
    writer.say("receipts", Role.WORKER, "worker-0", answer)

    _, page = reported(writer.save(tmp_path / "run.jsonl"), tmp_path / "report.html")

    told = text_of(page)
    assert "s0 lora at head germinated. Its gain was not measured" in told
    assert "not told: no rank ended in order" in told


def test_what_a_leader_decides_after_the_next_was_announced_is_no_round(tmp_path: Path) -> None:
    writer = Writer()
    void, held = (
        pb.BarrierCommit(version=1, round=1, digest=bytes(32), lease_token=token, latency_ms=latency_ms)
        for token, latency_ms in ((1, 99.0), (2, 5.0))
    )
    announced = pb.LeaderAnnouncement(version=1, leader="coordinator", lease_token=2, time_ns=1)
    for each in (announced, void, held):
        writer.say("decisions", Role.COORDINATOR, "coordinator", each)

    _, page = reported(writer.save(tmp_path / "run.jsonl"), tmp_path / "report.html")

    assert "1 committed, 0 aborted; p50 5 ms, p99 5 ms" in text_of(page)


def test_thousands_of_rounds_are_told_as_thousands_of_steps_are(tmp_path: Path) -> None:
    writer = Writer()
    writer.say("decisions", Role.COORDINATOR, "coordinator", pb.LeaderAnnouncement(version=1, lease_token=1, time_ns=1))
    for number in range(1, 1_001):
        commit = pb.BarrierCommit(version=1, round=number, digest=bytes(32), lease_token=1)
        writer.say("decisions", Role.COORDINATOR, "coordinator", commit)

    _, page = reported(writer.save(tmp_path / "run.jsonl"), tmp_path / "report.html")

    assert "1,000 committed, 0 aborted" in text_of(page)


def test_parameters_are_equal_where_every_rank_said_so(tmp_path: Path) -> None:
    writer, told = toy(ended=False), []
    for rank, digest in ((0, b"p" * 32), (1, b"q" * 32), (1, b"p" * 32)):
        report = pb.WorkerReport(worker=WORKERS[rank], steps=40, parameter_digest=digest)
        writer.record(rank, ended=pb.RunEnded(report=report, round_applied=2))
        told.append(text_of(reported(writer.save(tmp_path / "run.jsonl"), tmp_path / "report.html")[1]))

    assert "not told: 1 of 2 ranks ended in order" in told[0]
    assert "DIFFERENT between ranks" in told[1] and "equal on all ranks" in told[2]


def test_the_parts_that_each_rank_of_a_split_model_holds_are_no_difference(tmp_path: Path) -> None:
    writer = toy(ended=False)
    for rank, part in enumerate((b"p" * 32, b"q" * 32)):
        report = pb.WorkerReport(worker=WORKERS[rank], steps=40, parameter_digest=b"w" * 32, part_digest=part)
        writer.record(rank, ended=pb.RunEnded(report=report, round_applied=2))

    told = text_of(reported(writer.save(tmp_path / "run.jsonl"), tmp_path / "report.html")[1])

    assert "equal on all ranks, but for the parts that each holds alone" in told


@pytest.mark.parametrize("which", ["receipts", "commands"])
def test_a_log_that_was_changed_is_said_with_status_one(tmp_path: Path, which: str) -> None:
    writer = toy()
    entry = writer.book.streams[which][0]
    writer.book.streams[which][0] = entry._replace(sealed=altered(entry.sealed))
    log = writer.save(tmp_path / "run.jsonl")

    status, page = reported(log, tmp_path / "report.html")

    assert status == 1
    assert "bad_seal" in text_of(page) and "refused" in text_of(page)


def test_without_a_key_it_says_that_nothing_was_checked(tmp_path: Path) -> None:
    log = toy().save(tmp_path / "run.jsonl")
    (tmp_path / "keyring.json").unlink()

    status, page = reported(log, tmp_path / "report.html")

    told = text_of(page)
    assert status == 0 and "no seal, as there is no secret keyring" in told and "unchecked" in told
    assert "verified" not in told.replace("Verified: signed by", "")


def test_a_log_with_times_that_are_none_is_told_all_the_same(tmp_path: Path) -> None:
    writer = toy()
    writer.book.streams["commands"].append(Entry("commands", "99999999999999999999-0", b"junk"))

    status, page = reported(writer.save(tmp_path / "run.jsonl"), tmp_path / "report.html")

    assert status == 1 and "99999999999999999999ms" in text_of(page)


def test_decisions_of_a_run_of_days_have_their_day(tmp_path: Path) -> None:
    writer = toy(ended=False)
    _, short = reported(writer.save(tmp_path / "run.jsonl"), tmp_path / "report.html")
    writer.pass_ms(86_400_000)
    writer.decide(3, writer.say("commands", Role.CONTROLLER, "controller", GERMINATE), GERMINATE.command_id, 50)
    _, long = reported(writer.save(tmp_path / "run.jsonl"), tmp_path / "report.html")

    days = [re.findall(r'<th role="rowheader" scope="row">(?:(\S+) )?22:13:20</th>', page) for page in (short, long)]

    assert set(days[0]) == {""} and set(days[1]) == {"2023-11-14", "2023-11-15"}


def test_commands_that_waited_for_their_answers_are_all_told_however_many(tmp_path: Path) -> None:
    writer = Writer()
    asked = []
    for number in range(600):
        command = seed_command(pb.SeedOperation.SEED_OP_CULL)
        command.command_id = f"c{number}"
        asked.append((command.command_id, writer.say("commands", Role.CONTROLLER, "controller", command)))
    for command_id, entry in asked:
        answer = pb.CommandReceipt(version=1, command_id=command_id, entry_id=entry.entry_id, worker="coordinator")
        answer.status, answer.reason = pb.ReceiptStatus.RECEIPT_REJECTED, pb.ReasonCode.REASON_UNKNOWN_SEED
        writer.say("receipts", Role.COORDINATOR, "coordinator", answer)

    _, page = reported(writer.save(tmp_path / "run.jsonl"), tmp_path / "report.html")

    told = text_of(page)
    assert "600 published, 0 applied" in told and "600 unknown_seed" in told


def test_workers_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    writer = Writer()
    for rank, worker in enumerate(("worker-10", "worker-9")):
        report = pb.WorkerReport()
        report.CopyFrom(REPORT)
        report.worker = worker
        ended = pb.RunEnded(report=report, round_applied=1)
        record = pb.RunRecord(version=1, worker=worker, incarnation=1, rank=rank, world_size=2, ended=ended)
        writer.say("receipts", Role.WORKER, worker, record)

    _, page = reported(writer.save(tmp_path / "run.jsonl"), tmp_path / "report.html")

    assert re.findall(r"<dt>(worker-\d+)</dt>", page) == ["worker-9", "worker-10"]


def test_a_plot_says_how_many_of_its_lines_it_shows_and_runs_none_of_their_names() -> None:
    curves = Curves()
    for step in (10, 20):
        names = [f"<img src=x onerror=alert({number})>" for number in range(7)]
        seeds = [seed(name, Stage.SEED_STAGE_BLENDING, alpha=step / 20, stage_since_step=10) for name in names]
        curves.note(beat("worker-0", step, *seeds, step=step))

    drawn = plots(curves, curves.marks)

    assert "Alpha of each blended seed over steps: the first 6 of 7" in [each.caption for each in drawn]
    assert all("onerror" in each.svg and "<img" not in each.svg and "<script" not in each.svg for each in drawn[:2])


@pytest.mark.parametrize("value", [1e308, -1e308, 1e200])
def test_a_loss_as_large_as_a_number_can_be_is_drawn(value: float) -> None:
    curves = Curves()
    for step, loss in ((10, 1.0), (20, value), (30, 2.0)):
        curves.note(beat("worker-0", step, step=step, loss=loss))

    losses, *_ = plots(curves, curves.marks)

    assert losses.caption.startswith("Loss over steps") and "worker-0" in losses.svg


def test_a_place_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    log, taken = toy().save(tmp_path / "run.jsonl"), tmp_path / "taken"
    taken.write_text("a file")

    result = CliRunner().invoke(app, ["report", str(log), "--out", str(taken / "report.html")])

    assert result.exit_code == 2 and result.stderr.count("\n") == 1 and "--out" in result.stderr


def test_for_a_machine_it_is_one_object(tmp_path: Path) -> None:
    log = toy().save(tmp_path / "run.jsonl")

    result = CliRunner().invoke(app, ["report", str(log), "--out", str(tmp_path / "r.html"), "--json"])

    assert json.loads(result.output)["findings"] == 0


async def test_of_a_live_run_it_draws_losses_alphas_and_grafts(run: ScriptedRun, tmp_path: Path) -> None:
    give_observer(run)
    for epoch in range(1, 9):
        state = pb.SeedState(seed_id="s0", stage=Stage.SEED_STAGE_BLENDING, alpha=epoch / 8, stage_since_step=20)
        packet = pb.SystemStatePacket(
            version=1,
            packet_id=f"worker-0/{epoch}",
            current_epoch=epoch,
            global_step=10 * epoch,
            training_loss=1 / epoch,
            validation_accuracy=epoch / 10,
            validation_loss=2 / epoch,
            source_subsystem="worker-0",
            seed_states=[state],
        )
        await run.say("state", Role.WORKER, "worker-0", packet)
    entries = await report_store.read_live(run.redis, run.run_id)
    report_store.write(entries, tmp_path / report_store.SAID)
    thinned = await report_store.read_live(run.redis, run.run_id, most=3)

    kept = report_store.read_file(tmp_path / report_store.SAID)
    opened = [*report_store.opened(kept, run.master.derive(run.run_id, [Role.OBSERVER]))]
    assert kept == entries and len(opened) == 8
    assert len(thinned) <= 3 and [thinned[0], thinned[-1]] == [entries[0], entries[-1]]

    from esper.runtime.history import logbook
    from esper.web.finished import fold
    from esper.web.report import html

    book = await logbook.read_live(run.redis, run.run_id)
    page = html(fold(book, run.master.derive(run.run_id, [Role.OBSERVER]), opened))
    assert page.count("<svg") == 3 and "s0 grafted" in page
    assert "80 steps so far on 1 worker accuracy 0.8 parameters" in text_of(page)


async def test_a_run_that_ends_keeps_what_it_said_beside_its_log(
    run: ScriptedRun, redis: connect.Redis, tmp_path: Path
) -> None:
    from esper.runtime.history import logbook

    give_observer(run)
    packet = pb.SystemStatePacket(version=1, packet_id="worker-0/1", current_epoch=1, source_subsystem="worker-0")
    await run.say("state", Role.WORKER, "worker-0", packet)
    folder = tmp_path / run.run_id / logbook.LOG

    await logbook.keep(run.url, run.run_id, run.keyring.with_name("observer.json"), folder)

    kept = report_store.read_file(tmp_path / run.run_id / report_store.SAID)
    assert [entry.stream for entry in kept] == ["state"]
    assert kept == await logbook.beside(run.run_id, tmp_path)
    assert await redis.exists(names.key(run.run_id, "state")) == 1
