"""Which message travels in which domain, and which role may seal and open it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum, auto
from itertools import chain

from google.protobuf.message import Message

from esper.leyline import contracts as pb


class Domain(IntEnum):
    """What a message is about. Each has keys of its own, so that no seal fits in two of them."""

    COMMAND = 1
    OPTIMIZER = 2
    VOTE = 3
    DECISION = 4
    RECEIPT = 5
    TELEMETRY = 6
    AGGREGATE = 7
    EMERGENCY = 8
    STATE = 9
    HEARTBEAT = 10


class Role(StrEnum):
    """Who a process is on the wire. The value is what headers and keys name."""

    CONTROLLER = auto()
    OPTIMIZER = auto()
    WORKER = auto()
    COORDINATOR = auto()
    REGIONAL = auto()
    GLOBAL = auto()
    OBSERVER = auto()


# Number on the wire: the domain times a hundred, plus a count. Never reused.
_TYPES: Mapping[int, type[Message]] = {
    101: pb.AdaptationCommand,
    201: pb.OptimizerCommand,
    301: pb.BarrierVote,
    401: pb.BarrierProposal,
    402: pb.BarrierCommit,
    403: pb.BarrierAbort,
    404: pb.LeaderAnnouncement,
    501: pb.CommandReceipt,
    502: pb.RunRecord,
    601: pb.TelemetryFrame,
    602: pb.TelemetryPacket,
    603: pb.MetricSchema,
    604: pb.ColumnarFrame,
    701: pb.AggregatedTelemetry,
    801: pb.EmergencySignal,
    901: pb.SystemStatePacket,
    902: pb.FieldReport,
    1001: pb.Heartbeat,
}
_KINDS: Mapping[type[Message], int] = {message_type: kind for kind, message_type in _TYPES.items()}
_DOMAINS: Mapping[int, Domain] = {kind: Domain(kind // 100) for kind in _TYPES}


def kind_of(message_type: type[Message]) -> int:
    """The number of a message type in headers. KeyError: it never travels under a seal."""
    return _KINDS[message_type]


def type_of(kind: int) -> type[Message]:
    """The message type of a number. KeyError: no such kind."""
    return _TYPES[kind]


def domain_of(message_type: type[Message]) -> Domain:
    """The one domain that a message type travels in."""
    return _DOMAINS[_KINDS[message_type]]


def domain_of_kind(kind: int) -> Domain | None:
    """The domain of a number met in a header; None: no such kind."""
    return _DOMAINS.get(kind)


SEALS: Mapping[Role, frozenset[Domain]] = {
    Role.CONTROLLER: frozenset({Domain.COMMAND}),
    Role.OPTIMIZER: frozenset({Domain.OPTIMIZER}),
    Role.WORKER: frozenset(
        {Domain.VOTE, Domain.RECEIPT, Domain.TELEMETRY, Domain.EMERGENCY, Domain.STATE, Domain.HEARTBEAT}
    ),
    Role.COORDINATOR: frozenset({Domain.DECISION, Domain.RECEIPT}),
    Role.REGIONAL: frozenset({Domain.AGGREGATE}),
    Role.GLOBAL: frozenset({Domain.AGGREGATE}),
    Role.OBSERVER: frozenset(),
}

_EVERYTHING = frozenset((domain, role) for role, domains in SEALS.items() for domain in domains)
_ORDERS = frozenset({(Domain.COMMAND, Role.CONTROLLER), (Domain.OPTIMIZER, Role.OPTIMIZER)})
_ANSWERS = frozenset({(Domain.RECEIPT, Role.COORDINATOR), (Domain.RECEIPT, Role.WORKER)})
_VERDICTS = frozenset({(Domain.DECISION, Role.COORDINATOR)})

OPENS: Mapping[Role, frozenset[tuple[Domain, Role]]] = {
    Role.CONTROLLER: _EVERYTHING - _ORDERS - {(Domain.VOTE, Role.WORKER)},
    Role.OPTIMIZER: _ANSWERS | _VERDICTS,
    Role.WORKER: _ORDERS | _VERDICTS | {(Domain.EMERGENCY, Role.WORKER), (Domain.STATE, Role.WORKER)},
    Role.COORDINATOR: _ORDERS
    | _VERDICTS
    | _ANSWERS
    | {(Domain.VOTE, Role.WORKER), (Domain.HEARTBEAT, Role.WORKER), (Domain.EMERGENCY, Role.WORKER)},
    Role.REGIONAL: frozenset({(Domain.TELEMETRY, Role.WORKER)}),
    Role.GLOBAL: frozenset({(Domain.AGGREGATE, Role.REGIONAL)}),
    Role.OBSERVER: _EVERYTHING,
}


def pairs_held(role: Role) -> frozenset[tuple[Domain, Role]]:
    """Every (domain, sealing role) that a process of this role needs a key for."""
    return frozenset(chain(((domain, role) for domain in SEALS[role]), OPENS[role]))
