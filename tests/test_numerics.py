"""What decides bits is on record of each process, and a replay names each part of it that is another one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from operator import attrgetter

import pytest
import torch

from esper.cli import replay
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.validate.runs import NUM_NUMERICS, run_began
from esper.runtime.history.retrace import Life
from esper.session.numerics import ENVIRONMENT, numerics
from tests.log_kit import began


@pytest.fixture
def usual(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """As they are by default; what a test has changed of torch's is undone."""
    for name in ("PYTHONHASHSEED", *ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    yield numerics()
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    torch.use_deterministic_algorithms(False)
    torch.set_flush_denormal(False)


def test_modes_of_torch_and_the_environment_are_told_as_they_stand(
    usual: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_default_dtype(torch.bfloat16)
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_flush_denormal(True)
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setenv("MKL_CBWR", "AVX2")

    changed = {name: (then, now) for (name, then), now in zip(usual.items(), numerics().values(), strict=True)}

    assert {name: both for name, both in changed.items() if both[0] != both[1]} == {
        "default_dtype": ("float32", "bfloat16"),
        "float32_matmul_precision": ("highest", "medium"),
        "deterministic_algorithms": ("off", "warn"),
        "flush_denormal": ("off", "on"),
        "PYTHONHASHSEED": ("random", "7"),
        "MKL_CBWR": ("unset", "AVX2"),
    }
    assert numerics().keys() == usual.keys() and all(usual.values())


@pytest.mark.parametrize(
    ("backend", "told"), [("cuda.matmul", "cuda tf32, mkldnn ieee"), ("mkldnn.matmul", "cuda ieee, mkldnn tf32")]
)
def test_a_precision_that_is_set_for_one_backend_is_told_as_that(
    usual: dict[str, str], backend: str, told: str
) -> None:
    torch.set_float32_matmul_precision("highest")
    attrgetter(backend)(torch.backends).fp32_precision = "tf32"

    assert numerics() == {**usual, "float32_matmul_precision": told}


def test_to_look_at_them_draws_nothing(usual: dict[str, str]) -> None:
    before = torch.get_rng_state(), random.getstate()

    numerics()

    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]


def noted(now: pb.RunBegan, *then: pb.RunBegan) -> list[str]:
    """What `esper replay` prints of a rank that came to other bits."""
    result = replay.Result("toy", "aa" * 32, 9)
    report = pb.ReplayReport(began=now, report=pb.WorkerReport(steps=9, parameter_digest=bytes(32)))
    for _ in range(2):  # ranks
        lived = [Life(pb.RunRecord(version=1, began=each), each) for each in then]
        replay._note(result, pb.ReplayPlan(worker="worker-0", last_step=9), report, lived)
    return replay.told(result).splitlines()


def test_each_that_is_another_one_is_a_line_before_that_the_digests_differ() -> None:
    then = began(device="cpu", numerics={"numpy": "2.1.0", "PYTHONHASHSEED": "0", "MKL_CBWR": "unset"})
    later = began(device="cpu", resumed=True, numerics={**then.numerics, "MKL_CBWR": "AVX2"})
    now = began(device="cpu", numerics={**then.numerics, "PYTHONHASHSEED": "random"})

    lines = noted(now, then, later)

    assert lines[:-1] == ["warning: PYTHONHASHSEED is random, then 0", "warning: MKL_CBWR is unset, then AVX2"]
    assert lines[-1].startswith("run toy differs:")


def test_a_log_from_before_they_were_told_names_none() -> None:
    assert len(noted(began(device="cpu", numerics=numerics()), began(device="cpu"))) == 1


def test_a_record_with_too_many_of_them_is_refused() -> None:
    run_began(began(numerics=numerics()))

    with pytest.raises(RefusedError, match="numerics"):
        run_began(began(numerics={str(number): "on" for number in range(NUM_NUMERICS + 1)}))
