"""`esper publish`: answers on stdout, and bad input as one line on stderr with exit status 2."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from esper.leyline import contracts as pb
from tests.cli_kit import called
from tests.scripted import ScriptedRun, cancelled, failed, rejected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("adjust-optimizer", "--lr", "0.1"), "; a parameter goes as --param lr=VALUE\n"),
        (("adjust-optimizer", "--weight-decay", "0.1"), "; a parameter goes as --param weight_decay=VALUE\n"),
        (("germinate", "s0", "--rank", "4"), "; a parameter goes as --param rank=VALUE\n"),
        (("cull", "s0", "--why", "worse"), "No such option: --why\n"),
    ],
)
async def test_a_parameter_given_as_an_option_is_told_how_it_goes(words: tuple[str, ...], expected: str) -> None:
    status, out, err = await called("publish", *words)

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"esper: No such option: {words[-2]}") and err.endswith(expected)


async def test_germinate_prints_what_each_worker_answers(run: ScriptedRun) -> None:
    serving = asyncio.create_task(run.serve())

    words = ["publish", "germinate", "s0", "--site", "head", "--blueprint", "lora", "--param", "rank=4", "--run"]
    status, out, err = await called(*words, run.name)
    await cancelled(serving)
    [opened] = await run.received()

    assert (status, err) == (0, "")
    assert out.splitlines()[1:] == [
        "accepted by coordinator to take effect at step 108 on 2 workers",
        "applied by worker-0 at step 108",
        "applied by worker-1 at step 108",
    ]
    assert isinstance(opened.message, pb.AdaptationCommand)
    assert dict(opened.message.seed_command.parameters) == {"rank": 4.0}
    assert 0 < opened.message.timeout_ms <= 60_000  # what is left of the time that the answers are waited for


async def test_options_are_those_of_the_operation(run: ScriptedRun) -> None:
    words = ["publish", "adjust-optimizer", "--param", "lr=0.01", "--release", "momentum", "--no-wait", "--run"]
    status, _, _ = await called(*words, run.name)
    [opened] = await run.received()

    assert status == 0
    assert isinstance(opened.message, pb.AdaptationCommand)
    assert list(opened.message.optimizer_adjustment.release) == ["momentum"]
    assert (opened.message.timeout_ms, opened.header.deadline) == (0, 0)


async def test_a_graft_may_be_handed_to_the_policy_in_the_same_command(run: ScriptedRun) -> None:
    words = ["publish", "start-grafting", "s0", "--steps", "60", "--param", "auto=1", "--no-wait", "--run"]
    status, _, _ = await called(*words, run.name)
    [opened] = await run.received()

    assert status == 0
    assert isinstance(opened.message, pb.AdaptationCommand)
    assert dict(opened.message.seed_command.parameters) == {"steps": 60.0, "alpha": 1.0, "auto": 1.0}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (rejected("", "", pb.ReasonCode.REASON_UNKNOWN_SITE, "site is 'x'; expected hidden"), "unknown_site"),
        (rejected("", "", pb.ReasonCode.REASON_ILLEGAL_TRANSITION, "cull from DORMANT"), "illegal_transition"),
        (failed(pb.ReasonCode.REASON_GATE_FAILED, "no gain"), "gate_failed (said by worker-1)"),
    ],
)
async def test_what_the_run_refuses_is_one_line(run: ScriptedRun, answer: pb.CommandReceipt, expected: str) -> None:
    serving = asyncio.create_task(run.serve({1: answer}))

    status, _, err = await called("publish", "cull", "s0", "--run", run.name)
    await cancelled(serving)

    assert (status, err.count("\n")) == (2, 1)
    assert expected in err
    assert answer.detail in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("cull s0 --run nowhere", "no live run is called 'nowhere'"),
        ("cull s0", "ESPER_RUN"),
        ("germinate s0 --site head --blueprint lora --param rank --run {run}", "'rank'; expected NAME=NUMBER"),
        ("germinate s0 --site head --blueprint lora --param rank=four --run {run}", "'four'; expected a number"),
        ("germinate s0 --site head --blueprint lora --param rank=nan --run {run}", "nan"),
        ("germinate s0 --blueprint lora --run {run}", "--site"),
        ("start-grafting s0 --curve wavy --run {run}", "expected one of linear, cosine, sigmoid"),
        ("rollback --step -1 --run {run}", "step is -1; expected a whole number from 0 up, below 2**63"),
        ("blossom s0 --run {run}", "blossom"),
        (f"cull {'s' * 65} --run {{run}}", "at most 64 bytes"),
    ],
)
async def test_bad_input_is_one_line_with_the_value_and_what_was_expected(
    run: ScriptedRun, arguments: str, expected: str
) -> None:
    status, out, err = await called("publish", *arguments.format(run=run.name).split())

    assert (status, out, err.count("\n")) == (2, "", 1)
    assert expected in err


async def test_a_key_that_does_not_fit_is_one_line(run: ScriptedRun) -> None:
    run.keyring.chmod(0o644)

    status, _, err = await called("publish", "pause", "--run", run.name)

    assert (status, err.count("\n")) == (2, 1)
    assert str(run.keyring) in err


async def test_a_redis_that_is_gone_is_one_line(run: ScriptedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPER_REDIS_URL", "unix:///nowhere/redis.sock")
    monkeypatch.setenv("ESPER_KEYRING", str(run.keyring))

    status, _, err = await called("publish", "pause", "--run", run.run_id)

    assert (status, err.count("\n")) == (2, 1)
    assert "/nowhere/redis.sock" in err


def test_help_loads_neither_torch_nor_redis() -> None:
    code = (
        "import sys; from esper.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: sys.exit(any(name in sys.modules for name in ('torch', 'redis', 'google.protobuf')))"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


async def test_what_only_a_gate_holds_back_is_published_again_after_an_epoch(run: ScriptedRun) -> None:
    held = failed(pb.ReasonCode.REASON_GATE_FAILED, "fit_last is unmeasured")
    serving = asyncio.create_task(run.serve({1: held}))
    beating = asyncio.create_task(beaten(run))

    status, out, err = await called("publish", "start-grafting", "s0", "--attempts", "3", "--run", run.name)
    await cancelled(serving)
    await cancelled(beating)

    assert (status, err) == (0, "held back by worker-1, 2 attempts left: fit_last is unmeasured\n")
    assert out.splitlines() == ["applied by worker-0 at step 108", "applied by worker-1 at step 108"]
    assert len(await run.received(count=2)) == 2


async def test_each_new_reason_of_a_gate_is_told_as_it_comes_and_the_last_one_once(run: ScriptedRun) -> None:
    told = [failed(pb.ReasonCode.REASON_GATE_FAILED, detail) for detail in ("too new", "too new", "too large", "end")]
    serving = asyncio.create_task(run.serve(dict(enumerate(told, start=1))))
    beating = asyncio.create_task(beaten(run))

    status, out, err = await called("publish", "evaluate", "s0", "--attempts", "4", "--run", run.name)
    await cancelled(serving)
    await cancelled(beating)

    assert (status, out) == (2, "")
    *told_before, last = err.splitlines()
    assert told_before == [
        "held back by worker-1, 3 attempts left: too new",
        "held back by worker-1, 1 attempt left: too large",
    ]
    assert last.endswith("gate_failed (said by worker-1): end")


async def test_what_no_further_attempt_can_help_is_told_once(run: ScriptedRun) -> None:
    gone = failed(pb.ReasonCode.REASON_GATE_FAILED, "culled", stage=pb.SeedLifecycleStage.SEED_STAGE_CULLED)
    unknown = failed(pb.ReasonCode.REASON_UNKNOWN_SEED, "no seed s0")
    for answer in (gone, unknown):
        serving = asyncio.create_task(run.serve({1: answer, 2: answer}))
        status, out, err = await called("publish", "evaluate", "s0", "--attempts", "4", "--run", run.name)
        await cancelled(serving)

        assert (status, out, len(err.splitlines())) == (2, "", 1)


async def beaten(run: ScriptedRun) -> None:
    """Epoch after epoch, as fast as heartbeats are read."""
    epoch = 0
    while True:
        epoch += 1
        await run.beat(epoch)
        await run.redis.ping()
