"""What `esper top` shows: of a fixed picture, exactly the text that is kept, at the sizes that people use."""

from __future__ import annotations

from datetime import UTC

import pytest
from rich.color import ColorType

from esper.client import Controller
from esper.top.app import TopApp
from esper.top.board import Sight, board, dealt
from esper.view.picture import Picture
from tests.sealed import RUN
from tests.top_kit import Still, drawn, require_as_kept, screen
from tests.view_kit import Stage, beat, grown, seed


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_screen_is_the_one_that_is_kept(size: tuple[int, int]) -> None:
    app = TopApp(grown(), Still(), zone=UTC)
    width, height = size

    async with app.run_test(size=size) as pilot:
        await pilot.press("down")
        shown = screen(app)

    require_as_kept(f"top_{width}x{height}.txt", shown)


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


@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (81, 13), (200, 60)])
def test_a_screen_is_never_wider_or_higher_than_the_terminal(width: int, height: int) -> None:
    picture = grown()
    for number in range(40):
        picture.note(beat("worker-0", 9_000 + number, seed(f"seed-{number:02}", Stage.SEED_STAGE_TRAINING)))

    lines = board(picture, Sight(width, height, seed="seed-30"))

    assert len(lines) == height
    assert max(len(line.text) for line in lines) <= width


def test_the_chosen_seed_is_seen_however_many_there_are() -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, *(seed(f"seed-{n:02}", Stage.SEED_STAGE_TRAINING) for n in range(40))))

    lines = [line.text for line in board(picture, Sight(80, 24, seed="seed-30"))]

    assert [line.split()[:2] for line in lines if line.startswith("> ")] == [[">", "seed-30"]]


def test_what_a_run_says_cannot_move_the_cursor_of_a_terminal() -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, seed("s0", Stage.SEED_STAGE_TRAINING, site="\x1b[2Jhead")))

    assert all(line.text.isprintable() for line in board(picture, Sight(80, 24, trouble="\x1b]0;x\x07")))


def test_old_data_and_a_missing_key_are_said() -> None:
    picture = Picture(RUN)

    trouble = [line.text for line in board(picture, Sight(trouble="no answer"))]
    reading = [line.text for line in board(picture, Sight(read_only="no key"))]

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
