"""What a run file comes to: which processes, with which names, commands and environments."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from subprocess import PIPE

import pytest

from esper.bus.client.credentials import PASSWORD, USERNAME
from esper.bus.runs import RunRecord
from esper.cli.demo import demo_file
from esper.cli.running.fleet import example, groups
from esper.cli.running.plan import LocalRun, planned
from esper.cli.running.ports import free_port
from esper.runtime.crew.runfile import parse
from esper.runtime.crew.unit import Plan

RECORD = RunRecord("digits-0a1b2c3d", "digits", "redis://there:1", Path("/run/esper/digits-0a1b2c3d"))
RUN = LocalRun(RECORD, Path("/runs/digits-0a1b2c3d"))
CONTAINED = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]


def plans(*lines: str) -> list[list[Plan]]:
    return planned(parse("\n".join(('name = "digits"', *lines)), "run.toml"), RUN)


def names(tiers: list[list[Plan]]) -> list[list[str]]:
    return [[plan.name for plan in tier] for tier in tiers]


def environment(plan: Plan, number: int = 0) -> dict[str, str]:
    return dict(plan.programs[number].environment)


def test_tiers_end_in_the_order_in_which_nothing_is_lost() -> None:
    tiers = planned(parse(example(), "run.toml"), RUN)

    assert names(tiers) == [["trainer"], ["regional-r0", "regional-r1"], ["global"], ["coordinator"], []]
    assert [program.name for program in tiers[0][0].programs] == ["trainer-0", "trainer-1"]


def test_of_several_each_has_a_number() -> None:
    tiers = plans("coordinator.count = 2", "regional.count = 2", "global.count = 0", "trainer.count = 0")

    assert names(tiers) == [[], ["regional-r0-0", "regional-r0-1"], [], ["coordinator-0", "coordinator-1"], []]


def test_a_demo_of_one_worker_is_one_region_and_one_replica_and_of_three_the_example_with_one_rank_more() -> None:
    one, two, three = (planned(demo_file(Path("runs"), workers), RUN) for workers in (1, 2, 3))

    assert names(one) == [["trainer-0"], ["regional-r0"], ["global"], ["coordinator"], []]
    assert "RANK" not in environment(one[0][0])
    assert names(two) == names(three) == names(planned(parse(example(), "run.toml"), RUN))
    assert [len(tiers[0][0].programs) for tiers in (two, three)] == [2, 3]
    assert [environment(three[0][0], rank)["ESPER_REGION"] for rank in range(3)] == ["r0", "r1", "r0"]


def test_what_is_kept_going_is_no_rank_of_a_torchrun_that_esper_up_was_started_by() -> None:
    for plan in (plan for tier in planned(parse(example(), "run.toml"), RUN) for plan in tier):
        assert all("TORCHELASTIC_RUN_ID" in program.without for program in plan.programs), plan.name


def test_a_torchrun_hands_its_ranks_no_name_that_would_be_that_of_all() -> None:
    read = parse('name = "digits"\n[trainer]\ncount = 1\ncommand = ["torchrun", "train.py"]', "run.toml")
    [program] = planned(read, RUN)[0][0].programs

    assert "ESPER_NAME" not in program.environment
    assert "ESPER_NAME" in program.without


@pytest.mark.parametrize("command", ['"torchrun"', '"/opt/bin/torchrun"', '"python", "-m", "torch.distributed.run"'])
def test_a_torchrun_is_handed_all_regions_for_its_ranks_to_share_and_a_fresh_store_for_each_start(command: str) -> None:
    trainer = f'trainer = {{count = 1, command = [{command}, "--nproc-per-node=2", "train.py"]}}'
    [[unit], *_] = plans('regions = ["r0", "r1"]', trainer)
    [program] = unit.programs

    told = program.environment
    assert (told["ESPER_REGIONS"], told["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"]) == ("r0,r1", "1")
    assert "ESPER_REGION" not in told and "ESPER_REGION" in program.without


def test_each_process_is_told_its_run_its_name_and_its_own_keyring() -> None:
    [_, [regional], [tier], [coordinator], []] = plans('regions = ["eu"]')

    assert (
        environment(regional).items()
        >= {
            "ESPER_RUN": "digits-0a1b2c3d",
            "ESPER_REDIS_URL": "redis://there:1",
            "ESPER_KEYRING": "/run/esper/digits-0a1b2c3d/keys/regional.json",
            "ESPER_NAME": "regional-eu",
            "ESPER_REGION": "eu",
        }.items()
    )
    assert (environment(tier)["ESPER_REGIONS"], tier.programs[0].command[-1]) == ("eu", "esper.workers.global_")
    assert environment(coordinator)["ESPER_ARCHIVE"] == "/runs/digits-0a1b2c3d/log"


def test_processes_of_a_run_with_its_own_redis_hold_no_password_of_another() -> None:
    read = parse('name = "digits"\n[process.x]\ncommand = ["x"]', "run.toml")
    own = replace(RECORD, url=f"unix://{RECORD.directory}/redis.sock")

    for url, left_out in ((own.url, {PASSWORD, USERNAME, "ESPER_REDIS_CA"}), (RECORD.url, set()), ("unix:///s", set())):
        tiers = planned(read, LocalRun(replace(RECORD, url=url), RUN.directory))
        programs = [program for tier in tiers for plan in tier for program in plan.programs]
        assert len(programs) == 6 and all(left_out <= {*program.without} for program in programs)
        assert left_out or not any({PASSWORD, USERNAME} & {*program.without} for program in programs)


def test_ranks_of_a_group_meet_at_one_port_and_replicas_know_of_no_group() -> None:
    [[group], *_] = plans("trainer = {count = 2}", 'regions = ["r0", "r1"]')
    [[first, second], *_] = plans("trainer = {count = 2, together = false}")

    told = [environment(group, rank) for rank in range(2)]
    assert [(each["RANK"], each["WORLD_SIZE"], each["ESPER_REGION"]) for each in told] == [
        ("0", "2", "r0"),
        ("1", "2", "r1"),
    ]
    assert [each["ESPER_NAME"] for each in told] == ["worker-0", "worker-1"]
    assert set(group.fresh()) == {"MASTER_PORT"} and not first.fresh()
    assert "RANK" not in environment(first) and environment(second)["ESPER_NAME"] == "worker-1"


def test_nobody_else_gets_a_port_between_its_choice_and_the_ranks_meeting_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("esper.cli.running.ports._choices", count())
    chosen = [free_port() for _ in range(100)]

    monkeypatch.setattr("esper.cli.running.ports._choices", count())
    with socket.create_server(("127.0.0.1", chosen[0])):
        other = free_port()

    assert len(set(chosen)) == 100 and other != chosen[0]
    assert max(chosen) < 32_768  # from there on Linux gives ports to whoever names none


def test_processes_of_one_number_in_two_containers_choose_different_ports() -> None:
    if shutil.which("unshare") is None or subprocess.run([*CONTAINED, "true"], capture_output=True).returncode != 0:
        pytest.skip("no container can be made here")
    choosing = (
        "import os; from esper.cli.running.ports import free_port; print(os.getpid(), free_port(), flush=True); input()"
    )
    command = [*CONTAINED, sys.executable, "-c", choosing]

    with ExitStack() as both:  # at once: numbers of containers that have ended are given out again
        ran = [both.enter_context(subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True)) for _ in range(2)]
        chosen = [process.stdout.readline().split() for process in ran if process.stdout]
        for process in ran:
            process.communicate("\n")

    (number, port), (other_number, other_port) = chosen
    assert number == other_number
    assert port != other_port


def test_trainers_that_look_at_a_file_are_told_which() -> None:
    [[group], *_] = plans("trainer = {stop_by = 'file', finish_s = 3.0}")

    assert environment(group)["ESPER_STOP_FILE"] == str(group.stop_file) == "/runs/digits-0a1b2c3d/stop-trainer"
    assert group.finish_s == 3.0


def test_what_the_file_says_goes_before_what_holds_else() -> None:
    [[group], _, _, [coordinator], [extra]] = plans(
        "environment = {OMP_NUM_THREADS = '4', ESPER_ARCHIVE = '/archive'}",
        "process.web = {command = ['esper', 'web'], keys = 'controller'}",
    )

    assert environment(group)["OMP_NUM_THREADS"] == "4"
    assert environment(coordinator)["ESPER_ARCHIVE"] == "/archive"
    assert environment(extra)["ESPER_KEYRING"].endswith("/keys/controller.json")
    assert (extra.may_end, extra.essential, extra.role) == (True, False, "web")


def test_python_is_the_one_that_runs_this() -> None:
    [[group], *_, [extra]] = plans("process.x = {command = ['python', 'x.py']}")

    assert group.programs[0].command == [sys.executable, "-P", "-m", "esper.workers.trainer"]
    assert extra.programs[0].command == [sys.executable, "x.py"]


def test_groups_are_made_for_every_region_and_every_worker() -> None:
    read = parse('name = "d"\nregions = ["a", "b"]\ntrainer = {count = 3}', "run.toml")

    made = groups(read, "d-1")

    assert {group for key, group in made if key.endswith(":commands")} == {
        "coordinator",
        *(f"worker-{n}" for n in range(3)),
    }
    assert [key for key, group in made if group == "regional"] == ["esper:{d-1/a}:telemetry", "esper:{d-1/b}:telemetry"]
