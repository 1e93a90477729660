"""An optimizer that holds nothing of the model is taken, as its parameters may be copies, and told of."""

from __future__ import annotations

import pytest
import torch
from structlog.testing import capture_logs

from tests.seed_kit import Host
from tests.session_kit import unsteered


@pytest.mark.parametrize("num_held", [0, 1])
def test_an_optimizer_that_holds_nothing_of_the_model_is_told_of(num_held: int) -> None:
    host, other = Host(), Host()
    held = [*host.parameters()][:num_held]
    optimizer = torch.optim.SGD([*held, *other.parameters()], lr=0.1)

    with capture_logs() as events, unsteered(host, optimizer, "body"):
        pass

    told = [each["not_held"] for each in events if each["event"] == "optimizer.foreign"]
    assert told == ([] if num_held else [", ".join(name for name, _ in host.named_parameters())])
