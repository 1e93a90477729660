"""Bodies that make no sense under a good seal: what a producer with a bug, or in bad hands, can say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from esper.leyline import contracts as pb
from tests.faults.forge import Forge
from tests.faults.fuzz_bytes import plain
from tests.faults.fuzz_case import ACCEPTED, Case, Class, Make, entry
from tests.faults.fuzz_headers import odd

VARINT, FIXED64, LENGTH, GROUP, END_GROUP, FIXED32 = range(6)
VERSION, COMMAND_ID, TYPE, PRIORITY, SEED, PAUSE, ANNOTATIONS = 1, 2, 3, 4, 10, 14, 20  # fields of AdaptationCommand
MAX_DEPTH = 100  # of a message inside a message, for protobuf
NOT_FINITE = (math.nan, math.inf, -math.inf)
NO_TEXT = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80")
TOO_LONG = 64 << 6
OTHER_TYPES = (pb.CommandType.COMMAND_ROLLBACK, pb.CommandType.COMMAND_OPTIMIZER, pb.CommandType.COMMAND_PAUSE)

Change = Callable[[pb.AdaptationCommand, int], None]


def varint(number: int) -> bytes:
    """As protobuf writes it: seven bits a byte, the lowest first."""
    packed = bytearray()
    while number > 127:
        packed.append(number & 127 | 128)
        number >>= 7
    return bytes([*packed, number])


def tag(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


def text(field: int, value: bytes) -> bytes:
    return tag(field, LENGTH) + varint(len(value)) + value


def of_body(change: Callable[[bytes, Forge, int], bytes]) -> Make:
    """A good body, changed, under a good seal."""

    def make(forge: Forge, number: int) -> Case:
        command = forge.command()
        body = change(command.SerializeToString(), forge, number)
        return entry(forge.sealed(forge.draft(body)), command.command_id)

    return make


def of_command(change: Change) -> Make:
    """A good command, changed, under a good seal."""

    def make(forge: Forge, number: int) -> Case:
        command = forge.command()
        change(command, number)
        return entry(forge.sealed(forge.draft(command.SerializeToString())))

    return make


# -- what is no protobuf -----------------------------------------------------------------------------------------------


def groups(body: bytes, forge: Forge, number: int) -> bytes:
    """Unknown groups inside one another, deeper than protobuf goes; every other one is never closed."""
    depth = MAX_DEPTH + 1 + 37 * (number % 400)
    return body + tag(999, GROUP) * depth + (tag(999, END_GROUP) * depth if number % 2 else b"")


def unclosed(body: bytes, forge: Forge, number: int) -> bytes:
    """Groups of which one is never closed, or one closed that was never begun."""
    depth = number % (MAX_DEPTH // 2)
    return body + (tag(999, GROUP) * (depth + 1) + tag(999, END_GROUP) * depth if number % 2 else tag(999, END_GROUP))


def wrong_wire_type(body: bytes, forge: Forge, number: int) -> bytes:
    """A field that is needed comes as what it is not: protobuf takes it for one that it doesn't know."""
    command = pb.AdaptationCommand.FromString(body)
    field = (VERSION, COMMAND_ID, TYPE, SEED)[number % 4]
    command.ClearField(command.DESCRIPTOR.fields_by_number[field].name)
    given = tag(field, FIXED64) + bytes(8) if number % 8 < 4 else tag(field, FIXED32) + b"\1\0\0\0"
    return command.SerializeToString() + given


def lying_length(body: bytes, forge: Forge, number: int) -> bytes:
    """A field that says it is longer than what is left."""
    return body + tag((SEED, ANNOTATIONS, 999)[number % 3], LENGTH) + varint(1 + number) + bytes(number % (number + 1))


def overlong_varint(body: bytes, forge: Forge, number: int) -> bytes:
    return body + tag(TYPE, VARINT) + b"\x80" * (10 + number % 50) + b"\1"


def mutated(body: bytes, forge: Forge, number: int) -> bytes:
    """Some bytes drawn anew, taken out or put in."""
    changed = bytearray(body)
    for _ in range(1 + number % 4):
        at = forge.chance.randrange(len(changed) + 1)
        changed[at : at + forge.chance.randrange(3)] = forge.chance.randbytes(forge.chance.randrange(3))
    return bytes(changed)


# -- what is a command, and makes no sense -----------------------------------------------------------------------------


def not_finite(command: pb.AdaptationCommand, number: int) -> None:
    value = NOT_FINITE[number // 2 % 3]
    if number % 2:
        command.seed_command.parameters["steps"] = value
    else:
        adjust(command, {"lr": value})


def adjust(command: pb.AdaptationCommand, values: dict[str, float]) -> None:
    command.command_type = pb.CommandType.COMMAND_OPTIMIZER
    command.optimizer_adjustment.optimizer_id = "host"
    command.optimizer_adjustment.hyperparameters.update(values)


def too_many_entries(command: pb.AdaptationCommand, number: int) -> None:
    kind, more = number % 3, number // 3 % 50
    if kind == 0:
        command.annotations.update({f"k{at}": "v" for at in range(17 + more)})
    elif kind == 1:
        command.seed_command.parameters.update({f"k{at}": 1.0 for at in range(65 + more)})
    else:
        adjust(command, {f"k{at}": 1.0 for at in range(65 + more)})


def too_long_text(command: pb.AdaptationCommand, number: int) -> None:
    kind, more = number % 5, number // 5 % 100
    if kind == 0:
        command.seed_command.seed_id = "s" * (65 + more)
    elif kind == 1:
        command.seed_command.site = "s" * (256 + more)
    elif kind == 2:
        command.issued_by = "é" * (128 + more)
    elif kind == 3:
        command.annotations["note"] = "n" * (4097 + more)
    else:
        command.annotations["n" * (256 + more)] = "note"


def out_of_enumeration(command: pb.AdaptationCommand, number: int) -> None:
    value = (8, 99, 2**31 - 1, -1, -(2**31))[number // 4 % 5]
    if number % 4 == 0:
        command.command_type = value  # type: ignore[assignment]
    elif number % 4 == 1:
        command.priority = value  # type: ignore[assignment]
    elif number % 4 == 2:
        command.seed_command.operation = max(value, 13) if value > 0 else value  # type: ignore[assignment]
    else:
        command.seed_command.alpha_curve = value  # type: ignore[assignment]


def enumeration_unset(command: pb.AdaptationCommand, number: int) -> None:
    if number % 2:
        command.command_type = pb.CommandType.COMMAND_UNKNOWN
    else:
        command.seed_command.operation = pb.SeedOperation.SEED_OP_UNKNOWN


def another_type(command: pb.AdaptationCommand, number: int) -> None:
    command.command_type = OTHER_TYPES[number % len(OTHER_TYPES)]


def without_germination(command: pb.AdaptationCommand, number: int) -> None:
    """What a germination needs, but for one thing."""
    command.seed_command.operation = pb.SeedOperation.SEED_OP_GERMINATE
    if number % 2:
        command.seed_command.site = "0"
    else:
        command.seed_command.blueprint_id = "b"


def alpha_beyond(command: pb.AdaptationCommand, number: int) -> None:
    command.seed_command.operation = pb.SeedOperation.SEED_OP_SET_ALPHA_TARGET
    name, value = (("alpha", 1.5), ("alpha", -0.1), ("steps", -1.0))[number % 3]
    command.seed_command.parameters[name] = value


def set_and_released(command: pb.AdaptationCommand, number: int) -> None:
    adjust(command, {"lr": 0.1} if number % 2 else {})
    command.optimizer_adjustment.release.extend(["lr"] if number % 2 else [])


def with_id(value: Callable[[int], str]) -> Make:
    return of_command(lambda command, number: setattr(command, "command_id", value(number)))


def with_version(command: pb.AdaptationCommand, number: int) -> None:
    command.version = (0, 2, 3, 2**32 - 1)[number % 4]


# -- what protobuf takes, and is stated to be taken -------------------------------------------------------------------


def unknown_fields(body: bytes, forge: Forge, number: int) -> bytes:
    """Fields of a later version: passed over, of whatever kind they are."""
    field = 21 + number % 1000
    odd = (
        tag(field, VARINT) + varint(forge.chance.getrandbits(64)),
        tag(field, FIXED64) + bytes(8),
        text(field, forge.chance.randbytes(number % 300)),
        tag(field, FIXED32) + bytes(4),
        tag(field, GROUP) * 40 + tag(field, END_GROUP) * 40,
    )[number % 5]
    return odd + body if number % 2 else body + odd


def last_is_good(body: bytes, forge: Forge, number: int) -> bytes:
    """Fields given twice: the last one counts."""
    first = (
        tag(VERSION, VARINT) + varint(9),
        text(COMMAND_ID, b"i" * 65),
        tag(TYPE, VARINT) + varint(99),
        text(PAUSE, b""),
    )
    return first[number % 4] + body


def last_is_bad(body: bytes, forge: Forge, number: int) -> bytes:
    last = (tag(VERSION, VARINT) + varint(9), text(COMMAND_ID, b""), tag(TYPE, VARINT) + varint(99), text(PAUSE, b""))
    return body + last[number % 4]


# -- the table ---------------------------------------------------------------------------------------------------------

NO_BODY = ("malformed", "out_of_range", "wrong_version")


def nonsense(name: str, change: Change) -> Class:
    return plain(name, of_command(change), "out_of_range")


BODIES: Sequence[Class] = (
    plain("nested_too_deep", of_body(groups), "malformed"),
    plain("group_not_closed", of_body(unclosed), "malformed"),
    plain("body_truncated", of_body(lambda body, _, number: body[: number % len(body)]), *NO_BODY),
    plain("body_empty", of_body(lambda *_: b""), "wrong_version"),
    plain("wrong_wire_type", of_body(wrong_wire_type), "out_of_range", "wrong_version"),
    plain(
        "reserved_wire_type", of_body(lambda body, _, number: body + tag(1 + number % 30, 6 + number % 2)), "malformed"
    ),
    plain("field_number_zero", of_body(lambda body, _, number: body + tag(0, number % 6) + bytes(8)), "malformed"),
    plain("field_longer_than_body", of_body(lying_length), "malformed"),
    plain("overlong_varint", of_body(overlong_varint), "malformed"),
    plain("text_no_utf8", of_body(lambda body, _, number: body + text(COMMAND_ID, NO_TEXT[number % 4])), "malformed"),
    plain("body_of_zeros", of_body(lambda _, __, number: bytes(1 + number % 500)), "malformed"),
    nonsense("not_finite", not_finite),
    nonsense("out_of_enumeration", out_of_enumeration),
    nonsense("enumeration_unset", enumeration_unset),
    nonsense("body_missing", lambda command, _: command.ClearField("seed_command")),
    nonsense("body_of_another_type", another_type),
    nonsense("seed_without_name", lambda command, _: command.seed_command.ClearField("seed_id")),
    nonsense("germination_incomplete", without_germination),
    nonsense("alpha_beyond", alpha_beyond),
    nonsense("nothing_to_set", set_and_released),
    nonsense("too_many_entries", too_many_entries),
    nonsense("too_long_text", too_long_text),
    plain("too_long_id", with_id(lambda number: "i" * (65 + number % TOO_LONG)), "out_of_range"),
    plain("id_empty", with_id(lambda _: ""), "out_of_range"),
    plain("wrong_body_version", of_command(with_version), "wrong_version"),
    plain("last_is_bad", of_body(last_is_bad), "out_of_range", "wrong_version"),
    odd("unknown_fields", of_body(unknown_fields)),
    odd("last_is_good", of_body(last_is_good)),
    plain("body_mutated", of_body(mutated), ACCEPTED, *NO_BODY),
    plain("body_random", of_body(lambda _, forge, number: forge.chance.randbytes(number % 300)), *NO_BODY),
)
