"""Training waits for no barrier unless it outruns what it promised; each step that did is counted."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.session import Session
from esper.session.exchange import Exchange
from tests.seed_kit import Host, new_host, optimizer_of
from tests.session_kit import train, unsteered

PROMISE_STEPS = 8


class LateDecision(Exchange):
    """Hears of the decision when it has looked for it so many times."""

    looks = 3

    def pump(self, timeout_s: float = 0.0) -> None:
        self.looks -= 1
        if self.looks == 0:
            self.boundary.on_abort(pb.BarrierAbort(round=1))


def asked_for_a_vote() -> tuple[Host, Session]:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
    train(run, host, 2)
    run.exchange.boundary.on_proposal(pb.BarrierProposal(round=1, roster_generation=1, roster=["worker-0"]))
    return host, run


def test_within_a_promise_no_step_waits() -> None:
    host, run = asked_for_a_vote()

    train(run, host, PROMISE_STEPS)
    run.exchange.boundary.on_abort(pb.BarrierAbort(round=1))
    train(run, host, PROMISE_STEPS)

    assert run.status.steps_waited == 0
    assert run.close().steps_waited == 0


def test_the_step_that_outruns_a_promise_waits_and_is_counted_once() -> None:
    host, run = asked_for_a_vote()
    train(run, host, PROMISE_STEPS)

    late = run.exchange = LateDecision(None, run.exchange.boundary, run.exchange.rows)
    train(run, host, 3)

    assert late.looks <= 0
    assert run.close().steps_waited == 1
