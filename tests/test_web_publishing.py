"""A command from a browser: with the token alone, by its header alone, and only what the controller can say."""

from __future__ import annotations

import time
from typing import Any

import pytest

from esper.errors import BusError, SettingError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.runtime.watching.live import reach
from esper.web.publishing import OPERATIONS, described
from esper.web.serving import site_of
from esper.web.tokens import Token
from tests.scripted import ScriptedRun, accepted, applied, seed_state
from tests.web_kit import SECRET, give_observer, site, visiting

WITH_TOKEN = {"Authorization": f"Bearer {SECRET}"}
CULL = {"operation": "cull", "arguments": {"seed": "s0"}}


async def never(said: object) -> dict[str, str]:
    raise AssertionError(f"published {said}")


async def test_without_a_token_nothing_is_published() -> None:
    async with visiting(site(publish=never)) as client:
        answer = await client.post("/api/commands", json=CULL, headers=WITH_TOKEN)
        form = (await client.get("/api/commands")).json()

    assert answer.status_code == 403 and "--token-file" in answer.json()["error"]
    assert form["read_only"] is True


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"Authorization": "Bearer wrong-token-of-the-same-kind"},
        {"Authorization": f"Basic {SECRET}"},
        {"Cookie": f"Authorization=Bearer {SECRET}; token={SECRET}"},
        {"X-Token": SECRET},
    ],
)
async def test_what_another_site_can_make_a_browser_send_is_no_token(given: dict[str, str]) -> None:
    async with visiting(site(token=SECRET, publish=never)) as client:
        answer = await client.post(f"/api/commands?token={SECRET}", json=CULL, headers=given)

    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    ("body", "status"), [(b'{"operation": "cull"', 400), (b"[" * 60_000, 400), (b"[1]" + b" " * 70_000, 413)]
)
async def test_a_body_that_is_no_command_is_refused_in_a_sentence(body: bytes, status: int) -> None:
    headers = {**WITH_TOKEN, "Content-Type": "application/json"}
    async with visiting(site(token=SECRET, publish=never)) as client:
        answer = await client.post("/api/commands", content=body, headers=headers)
        plain = await client.post("/api/commands", content=body, headers={**headers, "Content-Type": "text/plain"})

    assert answer.status_code == status and answer.json()["error"].startswith("expected")
    assert plain.status_code == 415


async def test_a_redis_that_is_away_is_said() -> None:
    async def lost(said: object) -> dict[str, str]:
        raise BusError("Redis cannot be reached")

    async with visiting(site(token=SECRET, publish=lost)) as client:
        answer = await client.post("/api/commands", json=CULL, headers=WITH_TOKEN)

    assert answer.status_code == 503 and answer.json() == {"error": "Redis cannot be reached"}


async def test_with_the_token_a_command_is_sealed_signed_and_shown_with_its_answers(run: ScriptedRun) -> None:
    give_observer(run)
    await run.beat(1, seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_TRAINING))
    async with site_of(await reach(run.name), Token(SECRET)) as (shown, watch), visiting(shown) as client:
        command = {"operation": "start_grafting", "arguments": {"seed": "s0", "steps": 60, "auto": 1}}
        answer = await client.post("/api/commands", json=command, headers=WITH_TOKEN)
        [opened] = await run.received()
        told = answer.json()
        await run.answer(accepted(told["command_id"], told["entry_id"]))
        await run.answer(applied(told["command_id"], told["entry_id"], "worker-0"))
        row = await shown_with(shown, watch, 2)

    message: Any = opened.message
    assert answer.status_code == 202 and opened.entry_id == told["entry_id"] and opened.header.deadline
    assert dict(message.seed_command.parameters) == {"steps": 60.0, "alpha": 1.0, "auto": 1.0}
    assert row["what"] == "start grafting s0 (alpha=1, auto=1, steps=60)"
    assert row["seal"]["standing"] == "verified" and row["seal"]["producer"] == "web" and row["status"] == "accepted"
    assert [each["status"] for each in row["answers"]] == ["accepted", "applied"]


async def shown_with(shown: Any, watch: Any, answers: int) -> Any:
    """The newest command, once so many answers to it are on the page."""
    while True:
        rows = [row for row in shown.board.everything()["rows"] if row["kind"] == "command"]
        if rows and len(rows[-1]["answers"]) == answers:
            return rows[-1]
        watch.changed.clear()
        await watch.changed.wait()


NO_COMMANDS: list[tuple[object, str]] = [
    ("cull", "an object such as"),
    ({"operation": "fossilise", "arguments": {}}, "near: 'fossilize'"),
    ({"operation": "publish", "arguments": {}}, "one of"),
    ({"operation": "cull", "arguments": {}}, "expected seed too"),
    ({"operation": "cull", "arguments": {"seed": 7}}, "valid string"),
    ({"operation": "cull", "arguments": {"seed": "s0", "auto": 1}}, "only seed"),
    ({"operation": "germinate", "arguments": {"seed": "s0", "site": "a", "blueprint": "b", "rank": "4"}}, "number"),
    ({"operation": "germinate", "arguments": {"seed": "s0", "site": "a", "blueprint": "b", "self": 4}}, "only seed"),
    ({"operation": "set_alpha_target", "arguments": {"seed": "s0", "alpha": 2.0}}, "between 0 and 1"),
    ({"operation": "emergency", "arguments": {"level": "panic"}}, "panic"),
]


async def test_only_what_the_controller_can_say_is_published(run: ScriptedRun) -> None:
    give_observer(run)
    async with site_of(await reach(run.name), Token(SECRET)) as (shown, _), visiting(shown) as client:
        answers = [await client.post("/api/commands", json=said, headers=WITH_TOKEN) for said, _ in NO_COMMANDS]

    told = [(answer.status_code, answer.json()["error"]) for answer in answers]
    assert [(status, expected in error) for (status, error), (_, expected) in zip(told, NO_COMMANDS, strict=True)] == [
        (400, True)
    ] * len(NO_COMMANDS)
    assert await run.redis.exists(f"esper:{{{run.run_id}}}:commands") == 0


def test_the_form_knows_every_operation_and_what_each_must_have() -> None:
    forms = {form["name"]: form for form in described()}

    assert tuple(forms) == OPERATIONS
    required = {each["name"] for each in forms["germinate"]["arguments"] if each["required"]}
    assert required == {"seed", "site", "blueprint"} and forms["germinate"]["numbers"]
    assert [each["kind"] for each in forms["adjust_optimizer"]["arguments"]] == ["text", "texts"]
    assert all(form["does"] for form in forms.values())


async def test_a_page_without_a_token_holds_no_key_that_seals(run: ScriptedRun) -> None:
    give_observer(run)
    found = await reach(run.name)

    assert found.keyring.roles == (Role.OBSERVER,)
    with pytest.raises(SettingError):
        found.keyring.seal_key(Domain.COMMAND, Role.CONTROLLER, time.time_ns())
