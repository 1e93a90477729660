"""What `esper top` shows: of a fixed picture, exactly the text that is kept, at the sizes that people use."""

from __future__ import annotations

from datetime import UTC

import pytest
from rich.color import ColorType

from esper.client import Controller
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import DORMANT, EMBARGOED, FOSSILIZED, TERMINATED, TRAINING
from esper.top import pages
from esper.top.app import TopApp
from esper.top.board import ViewState, board, dealt
from esper.view.picture import Picture
from tests.sealed import RUN
from tests.top_kit import Still, drawn, require_as_kept, screen
from tests.view_kit import Look, Stage, beat, command, grown, seed, totals


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_screen_is_the_one_that_is_kept(size: tuple[int, int]) -> None:
    app = TopApp(grown(), Still(), zone=UTC)
    width, height = size

    async with app.run_test(size=size) as pilot:
        await pilot.press("down")
        shown = screen(app)

    require_as_kept(f"top_{width}x{height}.txt", shown)


def test_the_page_of_alarms_has_room_for_all_that_was_rejected() -> None:
    picture = Picture(RUN)
    many = {f"reason_{number}": number + 1 for number in range(12)}
    picture.look(Look(refused={"commands": many}))

    [_, line, *_] = pages.alarms(picture, UTC)

    assert line.startswith("REJECTED  12 reason_11  ") and line.endswith("1 reason_0")


def test_an_answer_that_came_to_no_step_names_none() -> None:
    picture, asked = Picture(RUN), command("c1", 0, pb.SeedOperation.SEED_OP_CULL, "s9")
    picture.note(asked)
    told = pb.CommandReceipt(version=1, command_id="c1", entry_id=asked.entry_id, worker="coordinator")
    told.status, told.detail = pb.ReceiptStatus.RECEIPT_REJECTED, "seed 's9' is unknown"
    picture.orders.note_receipt(told)

    _, line = pages.commands(picture, 80, UTC)

    assert line.split() == ["rejected", "coordinator", "seed", "'s9'", "is", "unknown"]


@pytest.mark.parametrize(
    ("stage", "epoch", "lines"),
    [
        (EMBARGOED, 8, ["embargoed until epoch 9"]),
        (EMBARGOED, 9, ["embargoed until a reset, possible since epoch 9"]),
        (DORMANT, 10, []),  # its site is free
    ],
)
def test_the_history_of_a_seed_says_what_its_embargo_waits_for(
    stage: pb.SeedLifecycleStage, epoch: int, lines: list[str]
) -> None:
    picture = Picture(RUN)
    culled = seed("bad", EMBARGOED, embargo_until_epoch=9)
    picture.note(beat("worker-0", 0, culled, step=80, epoch=1))
    picture.note(beat("worker-0", 1_000, seed("bad", stage, embargo_until_epoch=9), step=900, epoch=epoch))

    told = pages.history(picture, "bad", 80, UTC)

    assert [line for line in told if line.startswith("embargoed")] == lines


async def test_the_history_of_a_seed_is_the_one_that_is_kept() -> None:
    app = TopApp(grown(), Still(), zone=UTC)

    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("down", "enter")
        await pilot.pause()
        shown = screen(app, "#text")

    require_as_kept("top_seed_80x24.txt", shown)


async def test_no_colour_is_set_anywhere(controller: Controller) -> None:
    app, colours = TopApp(grown(), Still(), controller, zone=UTC), set()

    async with app.run_test(size=(80, 24)) as pilot:
        for keys in (["down"], ["question_mark"], ["escape", "p"], ["escape", "k"]):
            await pilot.press(*keys)
            styles = [part.style for widget in app.screen.query("*") for part in drawn(widget) if part.style]
            colours |= {color for style in styles for color in (style.color, style.bgcolor) if color}

    assert {colour.type for colour in colours} == {ColorType.DEFAULT}


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (81, 13), (200, 60), (8, 5), (1, 1)])
def test_a_screen_is_never_wider_or_higher_than_the_terminal(width: int, height: int) -> None:
    picture = grown()
    for number in range(40):
        picture.note(beat("worker-0", 9_000 + number, seed(f"seed-{number:02}", Stage.SEED_STAGE_TRAINING)))

    lines = board(picture, ViewState(width, height, seed="seed-30"))

    assert len(lines) == height
    assert max(len(line.text) for line in lines) <= width


def test_the_chosen_seed_is_seen_however_many_there_are() -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, *(seed(f"seed-{n:02}", Stage.SEED_STAGE_TRAINING) for n in range(40))))

    lines = [line.text for line in board(picture, ViewState(80, 24, seed="seed-30"))]

    assert [line.split()[:2] for line in lines if line.startswith("> ")] == [[">", "seed-30"]]


def test_what_a_run_says_cannot_move_the_cursor_of_a_terminal() -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, seed("s0", Stage.SEED_STAGE_TRAINING, site="\x1b[2Jhead")))

    assert all(line.text.isprintable() for line in board(picture, ViewState(80, 24, trouble="\x1b]0;x\x07")))


def test_what_is_not_ascii_is_a_question_mark_of_one_column() -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, seed("s\N{GREEK SMALL LETTER MU}0", Stage.SEED_STAGE_TRAINING, site="\u6f22")))

    lines = [line.text for line in board(picture, ViewState(80, 24))]

    assert all(line.isascii() for line in lines)
    assert [line.split()[:2] for line in lines if "TRAINING" in line] == [["s?0", "?"]]


def test_a_lag_and_a_step_are_told_whole_where_they_are_large() -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, step=12_345_678))
    picture.look(Look(lags={("commands", "worker-0"): 12_345}))

    row = next(line.text for line in board(picture, ViewState(80, 24)) if line.text.startswith("worker-0"))

    assert "12,345,678" in row and " 12,345 " in row


@pytest.mark.parametrize(("width", "shown"), [(109, "-0.123"), (110, "-0.123 [-0.135, -0.112]")])
def test_a_gain_has_its_interval_where_there_is_room_for_it(width: int, shown: str) -> None:
    picture = Picture(RUN)
    gain = pb.PairedGain(mean=-0.1234, low=-0.1354, high=-0.1123, examples=512, batches=4)
    told = pb.SeedReport(seed_id="s0", stage=Stage.SEED_STAGE_PROBATIONARY, paired_gain=gain)
    stands = seed("s0", Stage.SEED_STAGE_PROBATIONARY)
    picture.note(beat("worker-0", 0, stands, report=pb.WorkerReport(worker="worker-0", seeds=[told])))

    row = next(line.text for line in board(picture, ViewState(width, 24)) if "PROBATIONARY" in line.text)

    assert row.endswith(f" {shown}")


@pytest.mark.parametrize(
    ("stages", "lane"),
    [
        ((FOSSILIZED, TERMINATED), "G=T=B=S=P=F"),
        ((TRAINING, EMBARGOED), "G=T=x"),
        ((TRAINING, EMBARGOED, DORMANT, TERMINATED), "G=T=x"),
        ((DORMANT,), "g-t-b-s-p-f"),
        ((EMBARGOED,), "x"),
    ],
)
def test_a_lane_ends_where_the_seed_was_lost_and_nowhere_else(
    stages: tuple[pb.SeedLifecycleStage, ...], lane: str
) -> None:
    picture = Picture(RUN)
    for number, stage in enumerate(stages, 1):
        picture.note(beat("worker-0", number, seed("s0", stage, stage_since_step=10 * number), step=10 * number))

    row = next(line.text for line in board(picture, ViewState(80, 24)) if line.text.startswith("  s0"))

    assert row.split()[2] == lane


def test_a_run_whose_workers_have_all_said_their_last_words_is_ended() -> None:
    picture, doing = Picture(RUN), []
    for at_ms, worker in ((0, "worker-0"), (1, "worker-1")):
        picture.note(beat(worker, at_ms))
    for at_ms, worker in ((10, "worker-0"), (11, "worker-1")):
        picture.note(beat(worker, at_ms, report=pb.WorkerReport(worker=worker)))
        doing.append(board(picture, ViewState(80, 24))[0].text.split()[3])

    assert doing == ["running", "ended"]


def test_totals_that_may_not_be_read_are_a_dash_and_not_none_lost() -> None:
    picture, told = Picture(RUN), []
    for totals_read in (None, totals(64, 2, 1)):
        picture.look(Look(totals=totals_read))
        told += [line.text for line in board(picture, ViewState(80, 24)) if line.text.startswith("TELEMETRY")]

    assert told == [
        "TELEMETRY packets -/s  regional - (-)  global - (-)  lost -",
        "TELEMETRY packets -/s  regional - (32:1)  global - (2:1)  none lost",
    ]


def test_old_data_and_a_missing_key_are_said() -> None:
    picture = Picture(RUN)

    trouble = [line.text for line in board(picture, ViewState(trouble="no answer"))]
    reading = [line.text for line in board(picture, ViewState(read_only="no key"))]

    kept = [line.text for line in board(picture, ViewState(unread="decisions, state"))]
    assert "this user may not read decisions, state" in kept
    assert "OLD DATA no answer" in trouble
    assert "read-only: no key" in reading


def test_rows_go_first_to_the_fewest_then_in_turn() -> None:
    assert dealt(8, [2, 1, 9]) == [2, 1, 5]
    assert dealt(12, [9, 9, 9]) == [4, 4, 4]
    assert dealt(0, [9, 9, 9]) == [2, 3, 3]
    assert dealt(99, [1, 1, 1]) == [1, 1, 1]


async def test_time_passes_where_nothing_comes_and_stands_still_where_redis_does_not_answer() -> None:
    picture = grown()
    source = Still(at_ms=picture.now_ms + 3_000)
    app, shown = TopApp(picture, source, zone=UTC), []

    async with app.run_test(size=(80, 24)):
        for trouble in ("", "no answer"):
            source.trouble, source.at_ms = trouble, source.at_ms + 2_000
            app.draw()
            shown.append(screen(app))

    assert ["SILENT" in text for text in shown] == [False, False]
    assert "5.0s training" in shown[0] and "5.0s training" in shown[1]
    assert "OLD DATA of 7.0s ago: no answer" in shown[1]


async def test_a_page_gives_the_terminal_what_it_has_rows_for_and_scrolls_to_the_rest() -> None:
    picture = Picture(RUN)
    for number in range(100):
        picture.note(command(f"c{number:02}", number, pb.SeedOperation.SEED_OP_CULL, f"s{number:02}"))
    app = TopApp(picture, Still(), zone=UTC)
    shown = []

    async with app.run_test(size=(80, 24)) as pilot:
        for key in ("c", "pagedown", "end", "up", "home"):
            await pilot.press(key)
            await pilot.pause()
            shown.append(screen(app, "#text").splitlines())
        keys = screen(app, "#keys")

    assert [len(lines) for lines in shown] == [22] * 5
    assert [lines[0].split()[2] for lines in shown] == ["s99", "s77", "s21", "s22", "s99"]
    assert shown[2][-1].split()[2] == "s00"
    assert keys.startswith(" 1-22 of 100 ")


def test_answers_of_many_workers_that_are_alike_are_told_together() -> None:
    picture, asked = Picture(RUN), command("c1", 0, pb.SeedOperation.SEED_OP_CULL, "s0")
    picture.note(asked)
    for rank in range(64):
        step = 108 if rank < 63 else 109
        told = pb.CommandReceipt(version=1, command_id="c1", entry_id=asked.entry_id, worker=f"w{rank:02}", step=step)
        told.status = pb.ReceiptStatus.RECEIPT_APPLIED
        picture.orders.note_receipt(told)

    lines = pages.commands(picture, 80, UTC)

    assert [line.split() for line in lines[1:]] == [
        ["applied", "63", "workers", "step", "108"],
        ["applied", "w63", "step", "109"],
    ]
