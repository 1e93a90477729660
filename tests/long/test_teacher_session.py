"""REGISTER_TEACHER in a session: an order of the run brings the teacher, and the loop distils from it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import nn

import esper
from esper.errors import RefusedError, SettingError
from esper.leyline import contracts as pb
from esper.session import Session
from esper.session.teaching import open_teachers
from esper.tolaria.rows.rows import Rows
from esper.tolaria.teachers.faults import Unbreakable
from esper.tolaria.teachers.teachers import TeacherSource
from tests.altered import altered
from tests.seed_kit import Host, batch, equal, loss_of, new_host
from tests.session_kit import order, train, train_bare
from tests.teacher_kit import Professor, answers, professor, questions, register, saved


def attached(directory: Path, host: Host) -> Session:
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9)
    source = TeacherSource(directory, Professor, sample=questions(4))
    # No run is named, so that no runtime is started: the orders are a test's own.
    return esper.attach(host, optimizer=optimizer, sites=["body"], required=False, teachers=source)


def decided(run: Session, host: Host, *commands: pb.OptimizerCommand) -> None:
    """Have these carried out, and each decided on before one of the next steps."""
    order(run, *commands)
    train(run, host, 1)
    for _ in commands:
        assert run.teachers is not None
        run.teachers.wait()
        order(run)
        train(run, host, 1)


def events(run: Session) -> dict[str, dict[str, str]]:
    table = run.exchange.rows.table()
    assert table is not None
    return {event.description: dict(event.attributes) for event in table.events}


def test_the_loop_distils_from_the_teacher_that_an_order_has_brought(tmp_path: Path) -> None:
    (_, digest), host = saved(professor(), tmp_path), new_host()
    with attached(tmp_path, host) as run:
        assert run.teachers is not None
        decided(run, host, register(digest))
        for _ in range(2):
            with run.step():
                inputs, targets = batch(run.step_number)
                outputs = host(inputs)
                added = run.teachers.distil(outputs, inputs)
                torch.autograd.backward(loss_of(outputs, targets).mean() + added)
                run.optimizer.step()
                run.optimizer.zero_grad()

        expected = run.teachers.source.loss(outputs, answers(professor(), inputs))
        assert torch.equal(added, expected) and added > 0
        told = run.status.steering
        assert (told.num_applied, told.num_failed) == (1, 0)


def test_what_was_measured_travels_with_the_next_row_and_the_registration_with_its_events(tmp_path: Path) -> None:
    (_, digest), host = saved(professor(), tmp_path), new_host()
    with attached(tmp_path, host) as run:
        order(run, register(digest))
        train(run, host, 1)
        before = run.exchange.rows.table()
        assert run.teachers is not None
        run.teachers.wait()
        order(run)
        train(run, host, 2)
        first, second = run.exchange.rows.table(), run.exchange.rows.table()

    assert before is not None and first is not None and second is not None and not before.events
    fields = {"memory_before_checkpoint", "memory_after_checkpoint", "memory_saved_gb", "recomputation_count"}
    assert fields | {"checkpoint_overhead_ms", "teacher_params_registered"} <= {*first.names}
    assert not fields & {*second.names}
    said = {event.description: dict(event.attributes) for event in first.events}
    assert said["teacher.registered"]["digest"] == digest
    assert said["command.applied"]["detail"].startswith(f"teacher {digest[:12]} of 13155 parameters")


def test_a_refused_teacher_fails_its_command_and_leaves_the_training_bit_identical(tmp_path: Path) -> None:
    path, digest = saved(professor(), tmp_path)
    path.write_bytes(altered(path.read_bytes()))
    host = new_host()
    twin = copy.deepcopy(host)
    with attached(tmp_path, host) as run:
        decided(run, host, register(digest), register("f" * 64, "t1"), register("", "t2"))
        train(run, host, 1)
        told = events(run)

    train_bare(twin, torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9), 5)
    assert equal(dict(host.state_dict()), dict(twin.state_dict()))
    assert run.status.steering.num_failed == 3
    assert "sha256" in told["command.failed"]["detail"] or "digest" in told["command.failed"]["detail"]


def test_a_registered_teacher_leaves_the_training_bit_identical_until_its_loss_is_added(tmp_path: Path) -> None:
    (_, digest), host = saved(professor(), tmp_path), new_host()
    twin = copy.deepcopy(host)
    with attached(tmp_path, host) as run:
        decided(run, host, register(digest))
        train(run, host, 3)

    train_bare(twin, torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9), 5)
    assert equal(dict(host.state_dict()), dict(twin.state_dict()))


def test_no_optimizer_owns_a_teachers_parameter(tmp_path: Path) -> None:
    (_, digest), host = saved(professor(), tmp_path), new_host()
    with attached(tmp_path, host) as run:
        decided(run, host, register(digest))
        assert run.teachers is not None
        parameters = [parameter for _, parameter in run.teachers.named()]

        owners = {run.optimizers.owner_of(parameter) for parameter in parameters}
        with pytest.raises(RefusedError, match="belongs to 'teacher'; optimizer 'host' can't step it too"):
            run.optimizers.add_to_host([cast(nn.Parameter, parameters[0])])

    assert owners == {"teacher"}


def test_without_a_source_the_command_is_refused_with_a_reason(tmp_path: Path) -> None:
    host = new_host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
    with esper.attach(host, optimizer=optimizer, sites=["body"], required=False) as run:
        order(run, register("a" * 64))
        train(run, host, 1)
        told = events(run)

    assert run.teachers is None
    assert "no teacher can be registered here" in told["command.failed"]["detail"]


def test_teachers_on_some_ranks_only_are_refused_before_the_first_step(tmp_path: Path) -> None:
    host = new_host()
    optimizer, rows = torch.optim.SGD(host.parameters(), lr=0.1), Rows(incarnation=1)
    with pytest.raises(SettingError, match="teachers is 'given to 50% of the ranks'; expected given to all of them"):
        open_teachers(None, host, optimizer, rows, lambda flag: flag + 0.5, Unbreakable())


def test_an_option_of_another_name_is_refused(tmp_path: Path) -> None:
    host = new_host()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1)
    with pytest.raises(SettingError, match="teachers"):
        esper.attach(host, optimizer=optimizer, sites=["body"], teacher=TeacherSource(tmp_path, Professor))  # type: ignore[call-arg]
