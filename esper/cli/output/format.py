"""How messages read in a terminal: one line each, and JSON for machines."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from esper.cli.output.moments import said_at
from esper.leyline import contracts as pb
from esper.leyline.lifecycle import CULLED, EMBARGOED, outcome_name, reason_name, short, status_name
from esper.leyline.seal import Opened
from esper.leyline.terminal_text import printable
from esper.view.wording import counted, embargo
from esper.view.workers import Worker

_MOST_METRICS = 8


def as_dict(message: Message) -> dict[str, object]:
    """Field names as in proto/; bytes as base64, numbers of 64 bits as strings: the JSON form of protobuf."""
    return dict(MessageToDict(message, preserving_proto_field_name=True))


def as_json(opened: Opened) -> str:
    """One object on one line: where it lay, who sealed it, what it says."""
    head = {"entry_id": opened.entry_id, "producer": opened.header.producer, "role": str(opened.header.role)}
    return json.dumps({**head, "type": type(opened.message).__name__, **as_dict(opened.message)})


def line(opened: Opened, now_s: float) -> str:
    """One line for a person: when, who and what."""
    return printable(f"{said_at(opened.entry_id, now_s)}  {_said(opened.message)}")


def receipt_line(receipt: pb.CommandReceipt) -> str:
    """What one process answered to one command."""
    words = [status_name(receipt.status), f"by {receipt.worker}"]
    if receipt.status == pb.ReceiptStatus.RECEIPT_ACCEPTED:
        words.append(f"to take effect at step {receipt.step} on {counted(receipt.world_size, 'worker')}")
    elif receipt.step:
        words.append(f"at step {receipt.step}")
    if receipt.stage:
        words.append(f"-> {short(receipt.stage)}")
    if receipt.reason:
        words.append(f"({reason_name(receipt.reason)})")
    return printable(" ".join(words) + (f": {receipt.detail}" if receipt.detail else ""))


def heartbeat_line(beat: pb.Heartbeat, age_s: float) -> str:
    """Where one worker stands, what it is at unless it trains, and how long ago it said so."""
    worker = Worker(beat, heard_ms=0, report=beat.report if beat.HasField("report") else None)
    state = worker.state(int(age_s * 1_000))
    told = {"training": "", "silent": "  SILENT"}.get(state, f"  {state}")
    return printable(
        f"{beat.worker}  rank {beat.rank}/{beat.world_size}  {beat.region}  step {beat.step}  epoch {beat.epoch}"
        f"  loss {number(beat.loss)}{told}  {age_s:.1f} s ago"
    )


def seed_line(state: pb.SeedState, epoch: int, why: str) -> str:
    """Where one seed stands in this epoch of its worker; `why`: what it was culled for, or who rolled it back."""
    place = f" at {state.site}" if state.site else ""
    grown = f" ({state.blueprint_id})" if state.blueprint_id else ""
    paused = "  paused" if state.paused else ""
    stage = f"{short(state.stage)} {embargo(state, epoch)}".rstrip()
    if state.stage in (CULLED, EMBARGOED):
        why = f"culled: {why or 'why is not among the newest answers; `esper audit` reads all'}"
    told = f"  {why}" if why else ""
    return printable(f"  {state.seed_id}{place}{grown}  {stage}  alpha {number(state.alpha)}{paused}{told}")


def number(value: float) -> str:
    """Four significant digits; a dash for what was never measured."""
    return "-" if math.isnan(value) else f"{value:.4g}"


def _said(message: Message) -> str:
    match message:
        case pb.CommandReceipt():
            return f"{message.command_id or '(unread)'}  {receipt_line(message)}"
        case pb.RunRecord():
            return f"{message.worker}  {_record(message)}"
        case pb.TelemetryFrame():
            return f"{message.source}  {_frame(message)}"
        case pb.ColumnarFrame():
            return f"{message.source}  {_table(message)}"
        case pb.SystemStatePacket():
            return f"{message.source_subsystem}  {_state(message)}"
        case pb.FieldReport():
            return f"{message.seed_id}  {_field_report(message)}"
        case pb.AggregatedTelemetry():
            means = {name: statistics.mean for name, statistics in message.metrics.items()}
            place, size = message.region or "global", counted(message.num_packets, "packet")
            text = f"{place} #{message.sequence}  {size}  step {message.max_step}  {_values(means)}"
            return f"{text}{_events(message.events)}"
        case _:
            return f"{type(message).__name__}  {json.dumps(as_dict(message))}"


def _state(state: pb.SystemStatePacket) -> str:
    measured = {"accuracy": state.validation_accuracy, "loss": state.training_loss}
    seeds = "  ".join(f"{seed.seed_id} {short(seed.stage)}" for seed in state.seed_states)
    text = f"epoch {state.current_epoch}  step {state.global_step}  {_values(measured)}"
    return f"{text}  {seeds}" if seeds else text


def _field_report(report: pb.FieldReport) -> str:
    """Outcome first; of the metrics those that say what it was worth, and what it cost."""
    outcome = outcome_name(report.outcome)
    told = {name: report.metrics[name] for name in ("gain_mean", "lifetime_steps", "bytes") if name in report.metrics}
    steps = f"steps {report.observed_from_step}-{report.observed_to_step}"
    return f"{outcome} ({report.blueprint_id})  {short(report.stage)}  {steps}  {_values(told)}"


def _record(record: pb.RunRecord) -> str:
    match record.WhichOneof("said"):
        case "began":
            how = "resumed" if record.began.resumed else "began"
            return f"{how} before step {record.began.first_step}"
        case "ended":
            return f"ended after step {record.ended.report.steps}"
        case _:
            return f"judged {counted(len(record.judged.outcomes), 'request')} of round {record.judged.round}"


def _frame(frame: pb.TelemetryFrame) -> str:
    if not frame.packets:
        return "no packets"
    newest = frame.packets[-1]
    events = [event for packet in frame.packets for event in packet.events]
    size = counted(len(frame.packets), "packet")
    return f"{size}  step {newest.global_step}  {_values(newest.values)}{_events(events)}"


def _events(events: Iterable[pb.TelemetryEvent]) -> str:
    """Each kind once, with the detail or the reason that came with its newest."""
    told = {event.description: event.attributes.get("detail") or event.attributes.get("reason", "") for event in events}
    return "".join(f"  {name}: {detail}" if detail else f"  {name}" for name, detail in told.items())


def _table(table: pb.ColumnarFrame) -> str:
    """Its last row; cells are eight bytes, one column after the other."""
    num_rows = len(table.timestamp_ns) // 8
    cells = struct.unpack(f"<{num_rows * len(table.schema.names)}d", table.values)
    newest = dict(zip(table.schema.names, cells[num_rows - 1 :: num_rows], strict=True))
    [step] = struct.unpack("<Q", table.global_step[-8:])
    return f"{num_rows} rows  step {step}  {_values(newest)}"


def _values(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {number(value)}" for name, value in sorted(values.items())[:_MOST_METRICS])
