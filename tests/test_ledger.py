"""What calls of seeds note is summed up for all of them at once, and comes out as if each had been alone."""

from __future__ import annotations

import copy
import gc
import math

import pytest
import torch
from torch import Tensor

from esper.kasmina.config import KasminaConfig
from esper.kasmina.gates.ledger import STEPS, Blended, Call, Fitted, Ledger
from esper.kasmina.gates.meter import Meter, Meters
from esper.kasmina.seeds.states import rows_of

CPU = torch.device("cpu")
CONFIG = KasminaConfig(window=3, rho=0.5, rho_max=0.5)  # out of size: more than five times the host's norm


def call(meter: Meter, *of_delta: float, of_host: float = 1.0) -> Call:
    return Call(meter.row, torch.full((len(of_delta), 1), of_host), torch.tensor(of_delta)[:, None])


def scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def close(meter: Meter, host: float, gradient: float) -> None:
    meter.ledger.close_step(scalar(host), [meter.row], [meter.row], scalar(gradient)[None])


def test_figures_are_means_over_steps_and_the_unmeasured_is_told_apart() -> None:
    ledger = Ledger(CONFIG, CPU)
    fresh, measured = Meter(ledger), Meter(ledger)
    for towards, size, gradient in ((1.0, 1.0, 3.0), (2.0, 3.0, 5.0), (0.0, 5.0, 1.0)):
        ledger.calls.append(Fitted(call(measured, size, size, size, size), torch.tensor(2.0), torch.tensor(towards)))
        close(measured, 10.0, gradient)

    none, some = (row.figures for row in rows_of([fresh, measured]))

    assert none.gradient_norm == none.non_finite == 0.0
    assert all(math.isnan(value) for value in (none.fit, none.size, none.ratio))
    assert some == pytest.approx((1.0, (0.25 + 1.0 + 0.0) / 3, 3.0, 0.3, 0.0, 0.0))
    assert float(measured.first_fits) == pytest.approx(1.25)
    assert rows_of([]) == []


def test_a_step_of_two_calls_counts_as_one_with_their_mean() -> None:
    meter = Meter(Ledger(CONFIG, CPU))
    for towards, size in ((1.0, 1.0), (3.0, 2.0)):
        meter.ledger.calls.append(Fitted(call(meter, size, size), torch.tensor(2.0), torch.tensor(towards)))

    close(meter, 1.0, 1.0)

    assert (meter.fits.total, meter.sizes.total, float(meter.num_batches)) == (1, 1, 2.0)
    assert float(meter.fits.values[0]) == pytest.approx((0.25 + 2.25) / 2)
    assert float(meter.sizes.values[0]) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("of_delta", "of_host", "strikes", "non_finite"),
    [
        ((1.0, 1.0, 1.0, 1.0), 1.0, 0.0, 0.0),
        ((1.0, math.inf, math.nan, 1.0), 1.0, 1.0, 2.0),
        ((6.0, 6.0, 1.0, 1.0), 1.0, 0.0, 0.0),  # half of them out of size
        ((6.0, 6.0, 6.0, 1.0), 1.0, 1.0, 0.0),
        ((math.nan, math.nan, 1.0, 1.0), math.inf, 0.0, 0.0),  # the host's doing
        ((math.nan, math.nan, 1.0, 1.0), math.nan, 0.0, 0.0),
    ],
)
def test_a_call_that_was_gated_away_is_a_strike(
    of_delta: tuple[float, ...], of_host: float, strikes: float, non_finite: float
) -> None:
    meter = Meter(Ledger(CONFIG, CPU))

    meter.ledger.calls.append(Blended(call(meter, *of_delta, of_host=of_host), torch.tensor(2.5), shadowing=True))

    assert (float(meter.strikes), float(meter.num_non_finite), float(meter.num_shadowed)) == (strikes, non_finite, 1.0)
    close(meter, 1.0, 1.0)
    assert float(meter.drift) == pytest.approx(0.0 if not math.isfinite(of_host) else 0.25)  # 2.5 for a host of 2


def test_a_fit_without_a_gradient_is_the_size_of_delta_and_an_overflow_is_left_out() -> None:
    meter = Meter(Ledger(CONFIG, CPU))
    for gradient, towards in ((0.0, 0.0), (math.inf, math.inf)):
        meter.ledger.calls.append(Fitted(call(meter, 1.0, 1.0), torch.tensor(gradient), torch.tensor(towards)))

    close(meter, 1.0, 1.0)

    assert float(meter.fits.values[0]) == pytest.approx(4.0)  # (norm(delta) / (rho * norm(h))) squared


def test_when_it_is_written_changes_no_bit() -> None:
    config = KasminaConfig(window=STEPS + 3)
    at_once, late = Ledger(config, CPU), Ledger(config, CPU)
    generator = torch.Generator().manual_seed(1)
    meters = [[Meter(ledger) for _ in range(5)] for ledger in (at_once, late)]
    for step in range(3 * STEPS + 1):
        for index in range(5):
            samples = [float(value) for value in torch.rand(4 + step % 3, generator=generator)]
            gradient, towards = torch.rand(2, generator=generator)
            for own in meters:
                fitted = Fitted(call(own[index], *samples), gradient, towards)
                blended = Blended(call(own[index], *samples), gradient, shadowing=step % 2 == 0)
                own[index].ledger.calls.append(fitted if index < 3 else blended)
        norms = torch.rand(6, generator=generator, dtype=torch.float64)
        for own in meters:
            rows = [meter.row for meter in own]
            own[0].ledger.close_step(norms[0], rows, rows[:4], norms[1:5])
        at_once.write()

    late.write()

    assert torch.equal(at_once.sums, late.sums) and at_once.sums.any()
    assert torch.equal(at_once.levels, late.levels) and torch.equal(at_once.values, late.values)
    assert [ring.total for ring in late.rings[0]] == [3 * STEPS + 1] * 3


def test_calls_that_no_step_takes_are_counted_and_enter_no_window() -> None:
    meter = Meter(Ledger(CONFIG, CPU))
    for number in range(5):
        meter.ledger.calls.append(Blended(call(meter, 9.0, 9.0), torch.tensor(2.0), shadowing=False))
        assert float(meter.strikes) == number + 1.0
        if number == 2:
            meter.ledger.leave_out()
            assert meter.ledger.calls == []
    meter.ledger.leave_out()
    close(meter, 1.0, 1.0)

    assert (float(meter.num_batches), float(meter.strikes), meter.sizes.total) == (5, 5, 0)


def test_a_meter_gives_its_row_back_empty() -> None:
    meters = Meters(CONFIG, num_rows=2)
    first, second, third = (meters.new(CPU) for _ in range(3))
    assert [meter.ledger for meter in (first, second, third)] == [meters.ledgers[0]] * 2 + [meters.ledgers[1]]
    first.ledger.calls.append(Blended(call(first, 9.0, 9.0), torch.tensor(2.0), shadowing=False))
    close(first, 1.0, 1.0)
    assert float(first.strikes) == 1.0
    row = first.row

    del first
    gc.collect()
    again = meters.new(CPU)

    assert (again.ledger, again.row) == (second.ledger, row)
    assert (float(again.strikes), again.sizes.total, float(again.gradient_norm)) == (0.0, 0, 0.0)


def test_a_copy_keeps_what_was_and_fills_it_back() -> None:
    meter = Meter(Ledger(CONFIG, CPU))
    meter.ledger.calls.append(Fitted(call(meter, 1.0, 1.0), torch.tensor(2.0), torch.tensor(1.0)))
    close(meter, 1.0, 1.0)
    kept = copy.deepcopy(meter)
    meter.ledger.calls.append(Fitted(call(meter, 1.0, 1.0), torch.tensor(2.0), torch.tensor(1.0)))
    close(meter, 1.0, 2.0)
    meter.ledger.calls.append(Fitted(call(meter, 1.0, 1.0), torch.tensor(2.0), torch.tensor(1.0)))

    meter.fill(kept)

    assert (meter.fits.total, float(meter.num_batches), float(meter.gradient_norm)) == (1, 1.0, 1.0)


@pytest.mark.parametrize("way", ["copy", "row"])
def test_what_is_kept_between_two_steps_counts_the_calls_that_no_step_took(way: str) -> None:
    meter, again = Meter(Ledger(CONFIG, CPU)), Meter(Ledger(CONFIG, CPU))
    meter.ledger.calls.append(Blended(call(meter, 9.0, 9.0), torch.tensor(2.0), shadowing=False))

    if way == "copy":
        again.fill(copy.deepcopy(meter))
    else:
        again.fill_from(meter.as_row())
    meter.ledger.leave_out()  # as the step does that is begun now

    for each in (meter, again):
        found = float(each.num_batches), float(each.strikes), float(each.drift)
        assert found == pytest.approx((1.0, 1.0, 2.0 / math.sqrt(2.0) - 1.0))  # two samples of norm 1
