"""The keys of `esper top`: nothing is published before it was confirmed, and what becomes of it is told."""

from __future__ import annotations

import asyncio

from textual.pilot import Pilot
from textual.widgets import Input

from esper.client import Controller
from esper.leyline import contracts as pb
from esper.top.app import TopApp
from esper.top.dialogs import Ask, Confirm, Page
from esper.view.picture import Picture
from tests.scripted import ScriptedRun, cancelled
from tests.sealed import RUN
from tests.top_kit import Still, screen
from tests.view_kit import Stage, beat, grown, seed

SIZE = (80, 24)


def typed(text: str) -> list[str]:
    """The keys of a text."""
    return ["space" if letter == " " else letter for letter in text]


async def notices(app: TopApp, pilot: Pilot[None], start: str) -> str:
    """The first notice that begins so."""
    while not app.notice.startswith(start):
        await pilot.pause()
        await asyncio.sleep(0)
    return app.notice


async def test_a_typed_command_is_published_after_yes_and_its_outcome_is_told(
    run: ScriptedRun, controller: Controller
) -> None:
    app, serving = TopApp(grown(), Still(), controller), asyncio.create_task(run.serve())

    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("p", *typed("cull lora"), "enter")
        asked = screen(app, "Static")
        await pilot.press("y")
        told = await notices(app, pilot, "cull lora: ")
    await cancelled(serving)

    [opened] = await run.received()
    message = opened.message
    assert isinstance(message, pb.AdaptationCommand)
    assert message.seed_command == pb.SeedCommand(seed_id="lora", operation=pb.SeedOperation.SEED_OP_CULL)
    assert message.issued_by == "controller"
    assert "cull lora" in asked and "lora is BLENDING, alpha 0.62" in asked
    assert told == "cull lora: applied by 2 at step 108"


async def test_what_can_not_be_read_or_is_not_confirmed_is_not_published(
    run: ScriptedRun, controller: Controller
) -> None:
    app = TopApp(grown(), Still(), controller)

    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("p", *typed("cull"), "enter")
        said = screen(app, "#said")
        assert isinstance(app.screen, Ask)
        await pilot.press(*typed(" s0"), "enter", "enter")
        assert isinstance(app.screen, Confirm)
        await pilot.press("n", "k", "escape", "space", "q")
        assert app.notice == "nothing was published"
    await controller.pause()

    [first] = await run.received()
    assert "Missing argument" in said
    assert isinstance(first.message, pb.AdaptationCommand)
    assert first.message.WhichOneof("command") == "pause_command"


async def test_space_pauses_a_run_and_lets_a_paused_one_go_on(run: ScriptedRun, controller: Controller) -> None:
    app, serving = TopApp(grown(), Still(), controller), asyncio.create_task(run.serve())

    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("space", "y")
        await notices(app, pilot, "pause: ")
        for worker in ("worker-0", "worker-1"):
            app.picture.note(beat(worker, 9_000, busy=pb.BusyWith.BUSY_PAUSED))
        await pilot.press("space", "y")
        await notices(app, pilot, "resume: ")
        app.draw()
        title = screen(app).splitlines()[0]
    await cancelled(serving)

    told = [opened.message for opened in await run.received(count=2)]
    assert [isinstance(one, pb.AdaptationCommand) and one.pause_command.resume for one in told] == [False, True]
    assert "PAUSED" in title


async def test_a_seed_of_any_name_is_culled_by_that_name(run: ScriptedRun, controller: Controller) -> None:
    app = TopApp(Picture(RUN), Still(), controller)
    app.picture.note(beat("worker-0", 0, seed("the 'best' one", Stage.SEED_STAGE_TRAINING)))

    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("k")
        asked = screen(app, "Static")
        await pilot.press("y")
        [opened] = await run.received()

    message = opened.message
    assert isinstance(message, pb.AdaptationCommand)
    assert message.seed_command.seed_id == "the 'best' one"
    assert "the 'best' one is TRAINING" in asked


async def test_a_refusal_is_told_in_words(run: ScriptedRun, controller: Controller) -> None:
    app = TopApp(grown(), Still(), controller)

    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("p")
        app.screen.query_one(Input).value = "set-alpha-target lora --alpha 3"
        await pilot.press("enter", "y")
        told = await notices(app, pilot, "set-alpha-target")

    assert "alpha" in told and "3" in told


async def test_without_a_controllers_key_keys_that_publish_say_why_they_do_not() -> None:
    app = TopApp(grown(), Still())

    async with app.run_test(size=SIZE) as pilot:
        for key in ("p", "k", "space"):
            app.notice = ""
            await pilot.press(key)
            assert app.notice == "nothing can be published: this keyring holds no controller's key"
            assert len(app.screen_stack) == 1


async def test_a_tick_while_a_screen_is_taken_down_draws_nothing() -> None:
    app = TopApp(grown(), Still())

    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("c")
        page = app.screen
        assert isinstance(page, Page)
        await page.query("Static").remove()
        page.show()
        await pilot.press("escape")
        await app.query("#board").remove()
        app.draw()
        await pilot.pause()
        assert not app.query("#board")


async def test_pages_open_and_close_and_q_ends_it() -> None:
    app = TopApp(grown(), Still())

    async with app.run_test(size=SIZE) as pilot:
        pages = {"c": "stabilize lora", "w": "packets 14,160", "a": "kernel OPEN on worker-1", "h": "LANE"}
        for key, text in pages.items():
            await pilot.press(key)
            await pilot.pause()
            assert isinstance(app.screen, Page)
            assert text in screen(app, "#text")
            await pilot.press("escape")
        await pilot.press("q")
        await pilot.pause()

    assert app.return_code == 0
