"""A rollback to a step that memory holds no more comes from disk, whole or not at all."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from esper.leyline import contracts as pb
from tests.checkpoint_kit import Training
from tests.seed_kit import APPLIED, FAILED, Op, equal

Reason = pb.ReasonCode


def drawn() -> tuple[object, ...]:
    return torch.rand(3).tolist(), random.random(), np.random.rand()


def test_everything_is_as_it_was_grafts_made_since_included(tmp_path: Path) -> None:
    run = Training(tmp_path, optimizer="adamw")
    run.raise_seed(fossilize=False)
    run.train(40)  # of less its gate can't tell that it does good
    step, before, stages = run.step, run.everything(), run.stages()
    run.checkpoints.save(step)
    expected = drawn()
    run.do(Op.SEED_OP_FOSSILIZE)
    assert run.stages() == {"s0": "FOSSILIZED"}
    run.germinate("s1", "head", "lora")
    run.train(4)

    receipt = run.roll_back(step)

    assert receipt.status == APPLIED
    assert equal(run.everything(), before)
    assert drawn() == expected
    assert run.stages() == {**stages, "s1": "DORMANT"}
    assert not any("seed_s0" in name for name, _ in run.host.named_parameters())


@pytest.mark.parametrize("terminated", [False, True], ids=["since", "before"])
def test_what_a_terminated_fossil_has_learnt_since_is_undone(tmp_path: Path, terminated: bool) -> None:
    run = Training(tmp_path)
    run.raise_seed()
    if terminated:
        run.do(Op.SEED_OP_TERMINATE)
    step, before, stages = run.step, run.everything(), run.stages()
    run.checkpoints.save(step)
    if not terminated:
        run.do(Op.SEED_OP_TERMINATE)
    run.train(4)
    assert run.stages() == {"s0": "TERMINATED"}

    assert run.roll_back(step).status == APPLIED

    assert equal(run.everything(), before)
    assert run.stages() == stages


def test_a_fossil_made_and_terminated_since_leaves_the_host(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.raise_seed(fossilize=False)
    step, before, stages = run.step, run.everything(), run.stages()
    run.checkpoints.save(step)
    run.do(Op.SEED_OP_FOSSILIZE)
    run.do(Op.SEED_OP_TERMINATE)
    run.train(4)
    assert run.stages() == {"s0": "TERMINATED"}

    assert run.roll_back(step).status == APPLIED

    assert equal(run.everything(), before)
    assert run.stages() == stages


@pytest.mark.parametrize("in_memory", [False, True], ids=["from disk", "from memory"])
def test_a_parameter_that_the_script_has_stopped_training_since_stays_so(tmp_path: Path, in_memory: bool) -> None:
    run = Training(tmp_path)
    run.raise_seed()
    fossil = [name for name, _ in run.host.named_parameters() if "seed_s0" in name]
    step, optimizer, bias = run.step, run.optimizer, run.host.body.bias
    run.checkpoints.save(step)
    if in_memory:
        run.states.take(step)
    optimizer.param_groups[0]["params"] = [each for each in optimizer.param_groups[0]["params"] if each is not bias]
    del optimizer.state[bias]
    run.train(2)

    assert run.roll_back(step).status == APPLIED

    stepped = {id(each) for group in optimizer.param_groups for each in group["params"]}
    left = [name for name, each in run.host.named_parameters() if id(each) not in stepped]
    assert left == ["body.bias"] and fossil
    assert bias not in optimizer.state


def test_in_memory_it_keeps_the_history_of_an_lbfgs(tmp_path: Path) -> None:
    run = Training(tmp_path, optimizer="lbfgs")
    run.train(5)
    run.states.take(run.step)
    step, before = run.step, run.everything()
    for _ in range(2):
        run.train(3)

        run.states.restore(step, run.step)

        assert equal(run.everything(), before)


def test_training_goes_on_from_it_as_it_would_have(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.raise_seed()
    step = run.step
    run.checkpoints.save(step)
    run.train(5)
    expected = run.everything()

    run.roll_back(step)
    run.step = step  # the same batches; a run's own counter goes on
    run.train(5)

    assert equal(run.everything(), expected)


def test_what_a_rollback_undid_is_not_gone_back_to_again(tmp_path: Path) -> None:
    run = Training(tmp_path, every=4)
    run.raise_seed(fossilize=False)
    run.states.take(run.step)
    before = run.step
    run.do(Op.SEED_OP_FOSSILIZE)
    run.train(9)
    later = [ref.step for ref in run.states.refs() if ref.step > before]

    run.roll_back(before)

    assert later
    assert [ref.step for ref in run.states.refs() if ref.step > before] == []
    assert [run.roll_back(step).status for step in later] == [FAILED] * len(later)


def test_a_rollback_from_disk_forgets_what_memory_holds_of_what_it_undid(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.train(2)
    run.checkpoints.save(run.step)
    run.train(2)
    run.states.take(run.step)

    run.roll_back(3)

    assert [ref.step for ref in run.states.refs()] == [3]


def test_a_seed_culled_since_stays_culled(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.raise_seed(fossilize=False)
    run.checkpoints.save(run.step)
    run.do(Op.SEED_OP_CULL)

    assert run.roll_back(run.step).status == APPLIED

    assert run.stages() == {"s0": "EMBARGOED"}


def test_memory_wins_and_a_vote_names_both(tmp_path: Path) -> None:
    run = Training(tmp_path, every=2)
    run.train(2)
    run.states.take(run.step)
    run.train(3)
    for file in tmp_path.rglob("tensors.safetensors"):
        file.write_bytes(b"")

    assert [ref.step for ref in run.states.refs()] == [3, 5]
    assert run.roll_back(3).status == APPLIED


def test_one_that_does_not_verify_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.raise_seed(fossilize=False)
    path = run.checkpoints.save(run.step)
    run.train(2)
    before = run.everything()
    tensors = path / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1])

    receipts = [run.roll_back(run.step - 2), run.roll_back(1)]

    assert [(receipt.status, receipt.reason) for receipt in receipts] == [(FAILED, Reason.REASON_NO_SNAPSHOT)] * 2
    assert "is not the one that its manifest names" in receipts[0].detail
    assert "there is none of this step" in receipts[1].detail
    assert equal(run.everything(), before)


def test_no_rank_goes_back_where_another_can_not(tmp_path: Path) -> None:
    run = Training(tmp_path, mean=lambda value: value / 2)  # the other rank's share is 0
    run.train(2)
    run.checkpoints.save(run.step)
    run.train(2)
    before = run.everything()

    receipt = run.roll_back(3)

    assert receipt.status == FAILED
    assert "another rank" in receipt.detail
    assert equal(run.everything(), before)
