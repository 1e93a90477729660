"""The pages of a live run in a real headless Chromium: kept up, narrow, by keyboard, whatever seeds are called."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from esper.bus import names
from esper.bus.publisher import Publisher
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.runtime.watching.live import reach
from esper.web.serving import ListenAddress, bound, serve, site_of
from esper.web.tokens import Token
from tests.rounds import seed_command
from tests.scripted import ScriptedRun, accepted, applied, seed_state
from tests.web_kit import SECRET, give_observer

pytest.importorskip("playwright", reason="the extra 'browser' is not installed: make test-web")

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Request

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or ""
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium is here: install one, or say where (CHROMIUM)")
HOSTILE = "<img src=x onerror=window.met=1>"
LONG = "a-seed-of-a-name-as-long-as-names-may-be-which-is-64-bytes-long"
TARGETS = "a, button, input, select, summary"
TRAINING, BLENDING = pb.SeedLifecycleStage.SEED_STAGE_TRAINING, pb.SeedLifecycleStage.SEED_STAGE_BLENDING
CULL = pb.SeedOperation.SEED_OP_CULL


@dataclass
class Shown:
    """A page, and what went wrong on it."""

    page: Page
    address: str
    run: ScriptedRun
    troubles: list[str] = field(default_factory=list)

    async def visit(self, path: str = "/") -> None:
        """Until the page says what the run is at: one that says no more falls silent in five seconds."""
        await self.page.goto(self.address + path)
        await self.page.get_by_role("status").get_by_text(re.compile("^live|workers silent$")).first.wait_for()

    async def ask(self, command_id: str, seed_id: str) -> str:
        """A command of another controller's."""
        command = seed_command(CULL)
        command.command_id, command.seed_command.seed_id = command_id, seed_id
        return await self.run.say("commands", Role.CONTROLLER, "controller", command)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def showing(run: ScriptedRun, token: str = "", width: int = 1280) -> AsyncIterator[Shown]:
    """The run's site behind a port of this machine, and a browser of this width."""
    give_observer(run)
    await run.beat(1, seed_state("s0", TRAINING), seed_state(HOSTILE, BLENDING), seed_state(LONG, TRAINING))
    address = ListenAddress("127.0.0.1", 0)
    found = await reach(run.name)
    with bound(address) as listening:
        async with site_of(found, Token(token) if token else None) as (site, watch), chromium() as browser:
            serving = asyncio.create_task(serve(site, watch, address, listening))
            page = await browser.new_page(viewport={"width": width, "height": 800})
            shown = Shown(page, f"http://localhost:{listening.getsockname()[1]}", run)
            page.on("console", lambda said: shown.troubles.append(said.text) if said.type != "log" else None)
            page.on("pageerror", lambda error: shown.troubles.append(str(error)))
            page.on(
                "requestfailed", lambda request: shown.troubles.append(request.url) if is_trouble(request) else None
            )
            try:
                yield shown
            finally:
                await page.close()
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)


def is_trouble(request: Request) -> bool:
    """Whether it failed but for the page having been left, which ends its stream."""
    return not (request.url.endswith("/events") and request.failure == "net::ERR_ABORTED")


async def test_it_loads_without_an_error_and_shows_a_command_within_a_second(run: ScriptedRun) -> None:
    took_s = []
    async with showing(run) as shown:
        for path in ("/timeline", "/seed?id=s0", "/"):
            await shown.visit(path)
        for number in range(5):  # a machine may be busy once; a page that polls is slow always
            began = time.monotonic()
            entry_id = await shown.ask(f"c{number}", f"seed-{number}")
            await shown.page.get_by_text(f"cull seed-{number}").wait_for()
            took_s.append(time.monotonic() - began)
            if took_s[-1] < 1.0:
                break
        await run.answer(accepted(f"c{number}", entry_id))
        for worker in ("worker-0", "worker-1"):
            await run.answer(applied(f"c{number}", entry_id, worker))
        await shown.page.locator(".status.applied").wait_for()

    assert min(took_s) < 1.0
    assert shown.troubles == []


async def test_a_run_whose_workers_are_silent_is_not_called_live(run: ScriptedRun) -> None:
    async with showing(run) as shown:
        await shown.page.goto(shown.address)
        await shown.page.get_by_role("status").get_by_text("2 of 2 workers silent", exact=True).wait_for()

    assert shown.troubles == []


async def test_a_command_that_was_refused_says_why_without_being_opened(run: ScriptedRun) -> None:
    async with showing(run) as shown:
        await shown.visit()
        refused = accepted("c1", await shown.ask("c1", "s0"))
        refused.status, refused.reason = pb.ReceiptStatus.RECEIPT_REJECTED, pb.ReasonCode.REASON_EMBARGOED
        await run.answer(refused)
        await shown.page.locator("summary").get_by_text("rejected: embargoed", exact=True).wait_for()

    assert shown.troubles == []


async def test_of_a_seed_that_is_none_of_the_run_nothing_else_is_shown(run: ScriptedRun) -> None:
    async with showing(run) as shown:
        await shown.page.goto(f"{shown.address}/seed?id=nobody")
        await shown.page.get_by_text("no seed is called 'nobody'").wait_for()
        there = await shown.page.locator("h2:visible, figure:visible").all_inner_texts()

    assert there == ["Seed nobody"]


async def test_what_a_seed_is_called_is_shown_and_not_run(run: ScriptedRun) -> None:
    async with showing(run) as shown:
        await shown.visit()
        await shown.ask("c1", HOSTILE)
        await shown.page.get_by_text(f"cull {HOSTILE}").wait_for()
        await shown.page.get_by_role("link", name=HOSTILE, exact=True).first.click()
        await shown.page.get_by_role("heading", name=f"Seed {HOSTILE}").wait_for()
        found = await shown.page.evaluate("[document.images.length, window.met ?? null]")

    assert found == [0, None]
    assert shown.troubles == []


async def test_a_flood_of_junk_makes_no_page_grow_without_end(run: ScriptedRun) -> None:
    async with showing(run) as shown:
        await shown.visit("/timeline")
        await shown.ask("c1", "s0")
        for _ in range(6):
            await Publisher(run.redis).add_many(names.key(run.run_id, "commands"), [b"junk"] * 1_000)
        await shown.ask("c2", "s1")
        await shown.page.get_by_text("cull s1").wait_for()
        told = await shown.page.get_by_text("decisions, newest first").inner_text()
        await shown.page.get_by_label("signature").select_option("verified")
        await shown.page.get_by_text("cull s0").wait_for()

    assert 2 < int(told.split()[2]) <= 4_800
    assert shown.troubles == []


async def test_lines_of_a_plot_stand_in_the_order_of_their_numbers(run: ScriptedRun) -> None:
    async with showing(run) as shown:
        seeds = [seed_state(name, BLENDING) for name in ("s10", "s2")]
        for epoch in (2, 3):
            await run.beat(epoch, *seeds)
        await shown.visit()
        plot = shown.page.get_by_role("group", name="Alpha of each blended seed over steps. Newest")
        told = await plot.get_attribute("aria-label")

    assert told is not None and told.index("s2: ") < told.index("s10: ")


async def test_a_seed_may_be_called_as_objects_of_a_script_call_their_parts(run: ScriptedRun) -> None:
    async with showing(run) as shown:
        seeds = [seed_state(name, BLENDING) for name in ("__proto__", "constructor")]
        for epoch in (2, 3):
            await run.beat(epoch, *seeds)
        for name in ("__proto__", "constructor"):
            await shown.visit(f"/seed?id={name}")
            await shown.page.get_by_role("group", name="Alpha over steps. Newest").wait_for()

    assert shown.troubles == []


@pytest.mark.parametrize("path", ["/", "/timeline", f"/seed?id={LONG}"])
async def test_at_375_pixels_nothing_is_cut_off_and_targets_are_large_enough(run: ScriptedRun, path: str) -> None:
    async with showing(run, SECRET, width=375) as shown:
        await shown.ask("c1", LONG)
        await shown.visit(path)
        await shown.page.get_by_text(f"cull {LONG}").first.wait_for()
        await shown.page.locator("summary").first.click()
        wide = await shown.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        small = await shown.page.evaluate(
            f"""[...document.querySelectorAll('{TARGETS}')].filter((each) => each.checkVisibility())
                .map((each) => [each.outerHTML.slice(0, 80), each.getBoundingClientRect()])
                .filter(([, box]) => box.right > 0 && (box.width < 24 || box.height < 24)).map(([text]) => text)"""
        )

    assert wide <= 0
    assert small == []


async def test_by_keyboard_a_seed_is_found_opened_and_keeps_the_focus_meanwhile(run: ScriptedRun) -> None:
    async with showing(run) as shown:
        page = shown.page
        await shown.visit()
        link = page.get_by_role("link", name="s0", exact=True)
        await link.wait_for()
        focused = []
        for _ in range(12):
            await page.keyboard.press("Tab")
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            focused.append(await page.evaluate(f"[document.activeElement.textContent, {outline}]"))
            if focused[-1][0] == "s0":
                break
        for epoch in (2, 3):
            await run.beat(epoch, seed_state("s0", BLENDING), seed_state("new", TRAINING))
            await page.get_by_text(f"{100 * epoch} in epoch {epoch}", exact=True).wait_for()
        still = await page.evaluate("document.activeElement.textContent")
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name="Seed s0").wait_for()

    assert [text for text, _ in focused[:3]] == ["Skip to the content", "Run", "Timeline"]
    assert {outline for _, outline in focused} == {"solid"}
    assert focused[-1][0] == still == "s0"
    assert page.url.endswith("/seed?id=s0")
    assert shown.troubles == []


async def test_a_command_is_published_with_the_token_once_it_is_confirmed(run: ScriptedRun) -> None:
    async with showing(run, SECRET) as shown:
        page = shown.page
        await shown.visit()
        await page.get_by_label("operation").select_option("cull")
        await page.get_by_label("seed", exact=True).fill("s0")
        await page.get_by_label("token").fill("a wrong token of any length")
        await page.get_by_role("button", name="Publish").click()
        await page.get_by_role("button", name="Yes, publish").click()
        await page.get_by_text("the token is missing or wrong").wait_for()
        troubles = [*shown.troubles]
        await page.get_by_label("token").fill(SECRET)
        await page.get_by_role("button", name="Publish").click()
        await page.get_by_text("seed=s0: sure?").wait_for()
        await page.get_by_role("button", name="Yes, publish").click()
        [opened] = await run.received()
        await page.locator(".row").filter(has_text="cull s0").wait_for()

    assert opened.header.producer == "web"
    assert len(troubles) == 1 and "401" in troubles[0]
    assert shown.troubles == troubles


async def test_once_the_run_has_ended_no_form_offers_a_command(run: ScriptedRun) -> None:
    async with showing(run, SECRET) as shown:
        form = shown.page.get_by_role("heading", name="Publish a command")
        await shown.visit()
        await form.wait_for()
        for rank, worker in enumerate(("worker-0", "worker-1")):
            last = pb.Heartbeat(version=1, worker=worker, rank=rank, world_size=2, step=100, epoch=1)
            last.time_ns = time.time_ns()
            last.report.CopyFrom(pb.WorkerReport(worker=worker, steps=100, parameter_digest=b"p" * 32))
            await run.say("heartbeats", Role.WORKER, worker, last)
        await shown.page.get_by_role("status").get_by_text("ended", exact=True).wait_for()
        await form.wait_for(state="hidden")

    assert shown.troubles == []


async def test_of_a_seed_whose_life_was_not_read_no_measurement_is_denied_or_promised(run: ScriptedRun) -> None:
    async with showing(run) as shown:
        await run.beat(2, seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_CULLED))
        await shown.visit("/seed?id=s0")
        told = await shown.page.get_by_text("Not known").inner_text()

    assert told.startswith("Not known: what is read here begins behind this seed")
    assert shown.troubles == []
