"""Events for which rows have no room: bounded, what goes is counted and told, and at the end none waits for a step."""

from __future__ import annotations

from collections import Counter, deque
from itertools import chain

import torch
from torch import nn

from esper.leyline import contracts as pb
from esper.leyline.envelope import BODY_CAP_BYTES
from esper.leyline.validate.telemetry import telemetry_frame
from esper.narset.regional import Regional
from esper.runtime.beside.packets import Origin, signals, telemetry
from esper.session import Session
from esper.tolaria.rows.dropped_events import MOST_UNTOLD
from esper.tolaria.rows.rows import Rows
from tests.link_kit import Unanswered
from tests.seed_kit import Op
from tests.session_kit import on_seed, order, unsteered

DEBUG, INFO, WARNING, CRITICAL = (
    pb.TelemetryLevel.TELEMETRY_DEBUG,
    pb.TelemetryLevel.TELEMETRY_INFO,
    pb.TelemetryLevel.TELEMETRY_WARNING,
    pb.TelemetryLevel.TELEMETRY_CRITICAL,
)
ORIGIN = Origin("worker-0", "north")


class Stored(Unanswered):
    """Stores each table of rows, and says so."""

    def __init__(self) -> None:
        self.tables: list[pb.TelemetryRows] = []
        self._answers: deque[pb.ToTrainer] = deque()

    def rows_lane_free(self) -> bool:
        return True

    def send_rows(self, message: pb.ToRuntime) -> None:
        table = pb.TelemetryRows.FromString(message.rows.SerializeToString())
        self.tables.append(table)
        through = pb.RowsStored(through_sequence=table.first_sequence + len(table.timestamp_ns) - 1)
        self._answers.append(pb.ToTrainer(rows_stored=through))

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        if message.HasField("farewell"):
            self._answers.append(pb.ToTrainer(report_stored=pb.ReportStored()))
        if message.HasField("statement"):
            told = pb.StatementStored(number=message.statement.number)
            self._answers.append(pb.ToTrainer(statement_stored=told))

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        answers = list(self._answers)
        self._answers.clear()
        return answers


class Wide(nn.Module):
    """Many small sites, one behind the other."""

    def __init__(self, num_sites: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(num_sites))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def session(num_sites: int) -> tuple[Wide, Session, Stored]:
    torch.manual_seed(0)
    host, link = Wide(num_sites), Stored()
    run = unsteered(host, torch.optim.SGD(host.parameters(), lr=0.0), *(f"layers.{at}" for at in range(num_sites)))
    run.exchange.link = link
    return host, run, link


def take_step(run: Session, host: nn.Module) -> None:
    with run.step() as step:
        loss = host(torch.ones(2, 4)).mean()
        torch.autograd.backward(loss)
        run.optimizer.step()
        run.optimizer.zero_grad()
        step.loss(loss)


def folded(tables: list[pb.TelemetryRows]) -> list[pb.AggregatedTelemetry]:
    """What tier 1 makes of them; it raises where a frame is refused."""
    tier = Regional("north")
    for frame, _ in chain.from_iterable(telemetry(table, ORIGIN) for table in tables):
        assert isinstance(frame, pb.TelemetryFrame)
        telemetry_frame(frame)
        tier.on_frame(frame, 0.0)
    return list(tier.take(0.0))


def told(tables: list[pb.TelemetryRows]) -> list[str]:
    return [event.description for table in tables for event in table.events]


def tables_of(rows: Rows) -> list[pb.TelemetryRows]:
    return list(iter(rows.table, None))


def test_what_forty_seeds_are_germinated_with_in_the_last_step_is_told_in_full() -> None:
    host, run, link = session(num_sites=40)
    take_step(run, host)
    names = [f"s{at}" for at in range(40)]
    germinate = Op.SEED_OP_GERMINATE
    order(run, *(on_seed(germinate, name, site=f"layers.{at}", blueprint_id="lora") for at, name in enumerate(names)))
    take_step(run, host)

    report = run.close()

    assert sorted(event.attributes["command"] for table in link.tables for event in table.events) == sorted(
        f"{name}-SEED_OP_GERMINATE" for name in names
    )
    aggregates = folded(link.tables)
    assert sum(each.num_packets for each in aggregates) == report.packets - report.shed == 3
    assert max(each.max_step for each in aggregates) == 2
    assert sum(each.metrics["loss"].count for each in aggregates if "loss" in each.metrics) == 2
    assert sum(each.num_gaps for each in aggregates) == 0


def test_what_comes_after_the_last_step_is_told() -> None:
    host, run, link = session(num_sites=1)
    take_step(run, host)
    run.exchange.flush_when_due(0.0, force=True)
    for number in range(100):
        run.status.rows.note(WARNING, f"late {number}")
    run.status.rows.note(CRITICAL, "breaker.opened", reason="memory")

    report = run.close()

    assert sorted(told(link.tables)) == sorted(["breaker.opened", *(f"late {number}" for number in range(100))])
    [signal] = [signal for table in link.tables for signal in signals(table, ORIGIN)]
    assert (signal.reason, signal.global_step) == ("breaker.opened", 1)
    assert report.packets == sum(each.num_packets for each in folded(link.tables)) == 1 + 4
    assert run.status.rows.last.keys() == {"loss", "lr", "step_ms"}


def test_a_run_of_no_step_tells_what_happened() -> None:
    _, run, link = session(num_sites=1)
    run.status.rows.note(WARNING, "site.displaced")

    report = run.close()

    assert told(link.tables) == ["site.displaced"]
    assert report.packets == sum(each.num_packets for each in folded(link.tables)) == 1


def test_a_run_that_resumed_and_took_no_step_tells_what_happened_of_the_step_it_came_to() -> None:
    _, run, link = session(num_sites=1)
    run.step_number = 501
    run.status.rows.note(CRITICAL, "breaker.opened", reason="memory")

    run.close()

    [signal] = [signal for table in link.tables for signal in signals(table, ORIGIN)]
    assert signal.global_step == 500
    assert [each.max_step for each in folded(link.tables)] == [500]


def test_a_row_of_events_puts_no_measurement_out() -> None:
    rows = Rows(incarnation=1, capacity=3)
    for step in (1, 2):
        rows.add(step, step, {"loss": 1.0})
    for number in range(70):
        rows.note(CRITICAL, f"event {number}")

    rows.tell_rest(2, 9)
    first = tables_of(rows)
    rows.tell_rest(2, 9)
    rows.stored(3)
    rows.tell_rest(2, 9)
    second = tables_of(rows)

    assert [list(table.global_step) for table in first] == [[1, 2], [2]]
    assert [list(table.global_step) for table in second] == [[2, 2]]
    assert told(first + second) == [f"event {number}" for number in range(70)]
    assert (rows.made, rows.shed, rows.events.num) == (5, 0, 0)


def test_of_forty_events_a_step_the_oldest_of_the_lowest_level_go_counted_and_told() -> None:
    rows, tables = Rows(incarnation=1), []
    most = 0
    for step in range(1, 301):
        for number in range(40):
            rows.note(WARNING if number % 8 == 0 else DEBUG if number % 8 == 1 else INFO, f"{step}.{number}")
        most = max(most, rows.events.num)
        rows.add(step, step, {"loss": 1.0})
        if step % 32 == 0:
            tables += tables_of(rows)
            rows.stored(step)
    rows.tell_rest(300, 1)
    tables += tables_of(rows)

    assert most == MOST_UNTOLD
    events = [event for table in tables for event in table.events]
    news = [event.attributes for event in events if event.description == "events.dropped"]
    happened = Counter(event.level for event in events if event.description != "events.dropped")
    in_all = {name: int(num) for name, num in news[-1].items() if name not in ("num", "in_all")}
    assert in_all == {"DEBUG": 5 * 300 - happened[DEBUG], "INFO": 30 * 300 - happened[INFO]}
    assert happened[WARNING] == 5 * 300
    assert sum(int(each["num"]) for each in news) == int(news[-1]["in_all"]) == sum(in_all.values())
    assert rows.events.num == 0
    folded(tables)


def test_what_rows_tell_at_length_fits_its_frames_and_tables() -> None:
    rows = Rows(incarnation=1)
    for step in range(1, 101):
        for _ in range(32):
            rows.note(INFO, "command.failed", detail="w" * 4096)
        rows.add(step, step, {"loss": 1.0})

    tables = tables_of(rows)

    frames = [frame for table in tables for frame, _ in telemetry(table, ORIGIN)]
    assert max(frame.ByteSize() for frame in frames) < BODY_CAP_BYTES
    assert max(len(table.events) for table in tables) == 1024
    assert [step for table in tables for step in table.global_step] == list(range(1, 101))
