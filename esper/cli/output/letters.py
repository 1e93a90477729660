"""What `esper dead` shows of a letter: a row, its envelope as far as there is one, its body where keys open it."""

from __future__ import annotations

import json as notation
from typing import Any

from esper.bus.upkeep.dead import Letter
from esper.errors import RefusedError
from esper.leyline.envelope import unpack
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.lifecycle import reason_name
from esper.leyline.terminal_text import printable
from esper.runtime.history.reissue import opened


def summary(letter: Letter, now_ms: int) -> dict[str, Any]:
    """What a line of the list tells."""
    return {
        "id": letter.entry_id,
        "age_s": round(max(0, now_ms - letter.made_ms) / 1000, 1),
        "reason": letter.text("reason"),
        "stream": letter.origin,
        "producer": letter.producer,
        "attempts": number(letter.text("attempts")),
        "size": number(letter.text("size")),
        "kept": letter.kept is not None,
        "detail": letter.text("detail"),
    }


def line(row: dict[str, Any]) -> str:
    """The same for a person."""
    kept = "whole" if row["kept"] else "head only"
    told = f"{row['id']:20} {row['age_s']:>9.1f} s  {row['reason']:14} {row['stream']:12} {row['producer'] or '-':14}"
    return printable(f"{told} {row['attempts']}x {row['size']} B ({kept})  {row['detail']}")


def envelope(letter: Letter) -> dict[str, Any]:
    """What the envelope says of itself, believed or not; empty where the head alone was kept, or it is none."""
    try:
        header = unpack(letter.head).header
    except RefusedError:
        return {}
    return {
        "producer": header.producer,
        "role": header.role.value,
        "run": header.run_id,
        "target": header.target,
        "domain": header.domain.name.lower(),
        "kind": header.kind,
        "key_id": f"{header.key_id:08x}",
        "incarnation": f"{header.incarnation:016x}",
        "sequence": header.sequence,
        "issued_at_ns": header.issued_at_ns,
        "deadline": f"{header.deadline_kind.name.lower()} {header.deadline}".removesuffix(" 0"),
        "roster_generation": header.roster_generation,
    }


def content(letter: Letter, keyring: RoleKeyring, now_ms: int) -> dict[str, Any]:
    """The body as JSON where the keyring opens it; otherwise why not, with hash and head."""
    from esper.cli.output.format import as_dict

    told = {"group": letter.text("group"), "entry_id": letter.text("entry_id"), "sha256": letter.text("sha256")}
    if letter.kept is None:
        return {**told, "head": letter.head.hex()}
    try:
        message = opened(letter, keyring, now_ms).message
    except RefusedError as error:
        return {**told, "refused": f"{reason_name(error.reason)}: {error.detail}", "head": letter.head[:64].hex()}
    return {**told, "type": type(message).__name__, "body": as_dict(message)}


def page(told: dict[str, Any]) -> str:
    """All of it for a person, one name a line."""
    texts = {
        name: notation.dumps(value, indent=2) if isinstance(value, dict) else value for name, value in told.items()
    }
    return "\n".join(f"{name:18} {text if name == 'body' else printable(str(text))}" for name, text in texts.items())


def number(text: str) -> int:
    """A count from a letter; 0 where anything else stands there."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
