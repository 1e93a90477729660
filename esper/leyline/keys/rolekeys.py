"""The keys that one process holds: derived for its roles and one run, never the master secret."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey, VerifyKey

from esper.errors import RefusedError, SettingError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyfile import read_private, write_private
from esper.leyline.kinds import SEALS, Domain, Role
from esper.leyline.terminal_text import moment

EARLY_NS = 60_000_000_000
"""Who seals may go by a clock that is ahead of the one which dates the entry, by as much as a fresh message may be."""

_KIND = "role"


@dataclass(frozen=True, slots=True)
class Validity:
    """When a key may be used, in ns since the epoch: from `not_before_ns` on, before `not_after_ns`."""

    key_id: int
    not_before_ns: int
    not_after_ns: int

    def holds_at(self, at_ns: int) -> bool:
        """Whether a message of this time may carry the key."""
        return self.not_before_ns <= at_ns < self.not_after_ns

    def opens_at(self, at_ns: int) -> bool:
        """Whether an entry of this time may: also one of just before, which a clock behind the sealer's has dated."""
        is_ever_valid = self.not_before_ns < self.not_after_ns
        return is_ever_valid and self.not_before_ns - EARLY_NS <= at_ns < self.not_after_ns


class RoleKeyring:
    """Seal keys by (key id, domain, sealing role), and Ed25519 keys. Knows nothing of messages or of clocks."""

    def __init__(
        self,
        run_id: str,
        roles: Sequence[Role],
        validities: Iterable[Validity],
        keys: Mapping[tuple[int, Domain, Role], bytes],
        private: Mapping[tuple[int, Role], bytes],
        public: Mapping[tuple[int, Role], bytes],
    ) -> None:
        self.run_id = run_id
        self.roles = tuple(roles)
        self.version = 0
        self._validities = {validity.key_id: validity for validity in validities}
        self._newest_first = sorted(self._validities.values(), key=lambda v: (v.not_before_ns, v.key_id), reverse=True)
        self._keys = dict(keys)
        self._private, self._public = dict(private), dict(public)
        self._signing = {place: SigningKey(raw) for place, raw in private.items()}
        self._has_adopted: Callable[[], bool] = lambda: False

    def follow(self, look: Callable[[], bool]) -> None:
        """Have this called where a key is met that is not held: it may adopt newer ones, and says whether it did."""
        self._has_adopted = look

    def adopt(self, newer: RoleKeyring) -> None:
        """Hold what a newer keyring of the same run and roles holds; `version` tells those who remember keys."""
        if (newer.run_id, set(newer.roles)) != (self.run_id, set(self.roles)):
            met, held = (f"of {one.run_id} for {', '.join(sorted(one.roles))}" for one in (newer, self))
            raise SettingError("keyring", met, f"one {held}, as before")
        self._validities, self._newest_first = newer._validities, newer._newest_first
        self._keys, self._private, self._public = newer._keys, newer._private, newer._public
        self._signing = newer._signing
        self.version += 1

    def seal_key(self, domain: Domain, role: Role, now_ns: int) -> tuple[int, bytes]:
        """The newest key that is valid now. SettingError where this process may not seal so."""
        if role not in self.roles or domain not in SEALS[role]:
            wanted = f"one for {role.value}, which seals {domain.name.lower()}"
            raise SettingError("keyring", f"for {', '.join(self.roles)}", wanted)
        for validity in self._newest_first:
            if validity.holds_at(now_ns):
                return validity.key_id, self._keys[validity.key_id, domain, role]
        wanted = f"one with a key that is valid at {moment(now_ns)}: all in it are retired or not yet valid"
        raise SettingError("keyring", f"of {self.run_id}", wanted)

    def changes_at(self, now_ns: int) -> int | None:
        """When the newest valid key may next be another one; None: never."""
        ends = [end for each in self._newest_first for end in (each.not_before_ns, each.not_after_ns) if end > now_ns]
        return min(ends, default=None)

    def validity(self, key_id: int) -> Validity:
        """When a key that is held may be used."""
        return self._validities[key_id]

    def open_key(self, key_id: int, domain: Domain, role: Role, at_ns: int) -> bytes:
        """The key of a header met, if it was valid at the time of its entry."""
        key = self._keys.get((key_id, domain, role))
        if key is None and self._has_adopted():
            key = self._keys.get((key_id, domain, role))
        if key is None:
            raise _unknown(f"key {key_id:08x} for {domain.name.lower()} sealed by {role.value} is not held")
        validity = self._validities[key_id]
        if not validity.opens_at(at_ns):
            state = "was not valid yet at" if at_ns < validity.not_before_ns else "had ended by"
            raise _unknown(f"key {key_id:08x} {state} {moment(at_ns)}")
        return key

    def signing_key(self, key_id: int, role: Role) -> SigningKey | None:
        """The Ed25519 key that belongs to a seal key; None: this process doesn't hold it."""
        return self._signing.get((key_id, role))

    def public_key(self, key_id: int, role: Role) -> VerifyKey:
        """Checks signatures of `role` made beside a seal with this key."""
        raw = self._public.get((key_id, role))
        if raw is None:
            raise _unknown(f"no Ed25519 key {key_id:08x} of {role.value} is held")
        return VerifyKey(raw)

    @property
    def public_keys(self) -> dict[tuple[int, Role], bytes]:
        """Raw Ed25519 keys by key id and signing role; no secret is among them."""
        return dict(self._public)

    @property
    def validities(self) -> list[Validity]:
        """Of every key held, newest first."""
        return list(self._newest_first)

    def save(self, path: Path | str) -> None:
        """Write a file that only this user can read."""
        write_private(Path(path), self._as_json())

    @classmethod
    def load(cls, path: Path | str) -> RoleKeyring:
        """Read a file; refused where others can read it."""
        content = read_private(Path(path), _KIND)
        try:
            return cls._from_json(content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SettingError("keyring", str(path), f"a whole role keyring ({error!r})") from error

    def _as_json(self) -> dict[str, Any]:
        return {
            "esper_keyring": _KIND,
            "version": 1,
            "run_id": self.run_id,
            "roles": [role.value for role in self.roles],
            "validity": [
                {"id": v.key_id, "not_before_ns": v.not_before_ns, "not_after_ns": v.not_after_ns}
                for v in self._newest_first
            ],
            "keys": [
                {"id": key_id, "domain": domain.name.lower(), "role": role.value, "key": key.hex()}
                for (key_id, domain, role), key in self._keys.items()
            ],
            "private": _ed25519_rows(self._private),
            "public": _ed25519_rows(self._public),
        }

    @classmethod
    def _from_json(cls, content: dict[str, Any]) -> RoleKeyring:
        return cls(
            str(content["run_id"]),
            [Role(role) for role in content["roles"]],
            [Validity(row["id"], row["not_before_ns"], row["not_after_ns"]) for row in content["validity"]],
            {
                (row["id"], Domain[row["domain"].upper()], Role(row["role"])): bytes.fromhex(row["key"])
                for row in content["keys"]
            },
            _ed25519_from(content["private"]),
            _ed25519_from(content["public"]),
        )


def _ed25519_rows(keys: Mapping[tuple[int, Role], bytes]) -> list[dict[str, Any]]:
    return [{"id": key_id, "role": role.value, "ed25519": raw.hex()} for (key_id, role), raw in keys.items()]


def _ed25519_from(rows: list[dict[str, Any]]) -> dict[tuple[int, Role], bytes]:
    return {(row["id"], Role(row["role"])): bytes.fromhex(row["ed25519"]) for row in rows}


def _unknown(detail: str) -> RefusedError:
    return RefusedError(pb.ReasonCode.REASON_UNKNOWN_KEY, detail)
