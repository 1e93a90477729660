"""The master keyring: the secrets that every key of every run comes from. Stays with `esper keys`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from esper.errors import SettingError
from esper.leyline.keys.derive import KEY_BYTES, seal_key, signing_key
from esper.leyline.keys.keyfile import read_private, write_private
from esper.leyline.keys.rolekeys import RoleKeyring as RoleKeyring, Validity as Validity
from esper.leyline.kinds import Role, pairs_held

SECOND_NS = 1_000_000_000
LIFETIME_S = 365 * 86_400
# Clocks that lag behind the one that made the key: a hardware clock in local time is hours ahead until NTP steps it.
SKEW_S = 86_400
# How long the old key still opens and seals after the new one took over: time to hand out new role keyrings.
OVERLAP_S = 86_400
# Commands carry the controller's signature, each rank's checkpoint manifests a worker's.
SIGNERS = (Role.CONTROLLER, Role.WORKER)
KEYRINGS: dict[str, list[Role]] = {
    "worker": [Role.WORKER],
    "coordinator": [Role.COORDINATOR],
    "regional": [Role.REGIONAL],
    "global": [Role.GLOBAL],
    "controller": [Role.CONTROLLER, Role.OPTIMIZER],
    "observer": [Role.OBSERVER],
}
"""Those of a run, by the names of their files: the roles whose keys each holds."""

_KIND = "master"


@dataclass(frozen=True, slots=True)
class MasterKey:
    """One secret, and when it may be used."""

    validity: Validity
    secret: bytes


class MasterKeyring:
    """Holds master secrets and derives role keyrings from them. Never given to a process of a run."""

    def __init__(self, keys: Sequence[MasterKey]) -> None:
        self._keys = tuple(keys)

    @classmethod
    def new(cls, now_ns: int) -> MasterKeyring:
        """A keyring with one fresh key, valid from now on for a year."""
        return cls([_fresh_key(now_ns - SKEW_S * SECOND_NS)])

    def rotate(self, now_ns: int, *, lead_s: int = 0, overlap_s: int = OVERLAP_S) -> MasterKeyring:
        """One key more, that seals from `lead_s` on; those before it are retired `overlap_s` later."""
        takes_over_ns = now_ns + lead_s * SECOND_NS
        retired_ns = takes_over_ns + overlap_s * SECOND_NS
        return MasterKeyring([*(_retire(key, retired_ns) for key in self._keys), _fresh_key(takes_over_ns)])

    def retire(self, key_id: int, at_ns: int, *, force: bool = False) -> MasterKeyring:
        """One key opens and seals nothing of `at_ns` or later. `force` also takes the last one that is valid then."""
        named = [key for key in self._keys if key.validity.key_id == key_id]
        if not named:
            held = ", ".join(f"{validity.key_id:08x}" for validity in self.validities)
            raise SettingError("key", f"{key_id:08x}", f"one of {held}")
        if at_ns >= named[0].validity.not_after_ns:
            raise SettingError("key", f"{key_id:08x}", "one that is not retired by then already")
        kept = [_retire(key, at_ns) if key in named else key for key in self._keys]
        if not force and not any(key.validity.holds_at(at_ns) for key in kept):
            raise SettingError(
                "key", f"{key_id:08x}", "one beside another that is valid then: rotate first, or --force"
            )
        return MasterKeyring(kept)

    def derive(self, run_id: str, roles: Sequence[Role]) -> RoleKeyring:
        """The keys that a process of these roles needs in one run, for every key not yet forgotten."""
        pairs = sorted(frozenset().union(*(pairs_held(role) for role in roles)))
        ids = [(key.validity.key_id, key.secret) for key in self._keys]
        signing = {(i, role): signing_key(secret, i, run_id, role) for i, secret in ids for role in SIGNERS}
        return RoleKeyring(
            run_id,
            roles,
            self.validities,
            {
                (i, domain, role): seal_key(secret, i, run_id, domain, role)
                for i, secret in ids
                for domain, role in pairs
            },
            {place: bytes(key) for place, key in signing.items() if place[1] in roles},
            {place: bytes(key.verify_key) for place, key in signing.items()},
        )

    @property
    def validities(self) -> list[Validity]:
        """Ids and times of every key, oldest first: what a listing may show."""
        return [key.validity for key in self._keys]

    def save(self, path: Path | str) -> None:
        """Write a file that only this user can read."""
        rows = [
            {
                "id": key.validity.key_id,
                "not_before_ns": key.validity.not_before_ns,
                "not_after_ns": key.validity.not_after_ns,
                "secret": key.secret.hex(),
            }
            for key in self._keys
        ]
        write_private(Path(path), {"esper_keyring": _KIND, "version": 1, "keys": rows})

    @classmethod
    def load(cls, path: Path | str) -> MasterKeyring:
        """Read a file; refused where others can read it."""
        content = read_private(Path(path), _KIND)
        try:
            return cls([_key_from(row) for row in content["keys"]])
        except (KeyError, TypeError, ValueError) as error:
            raise SettingError("keyring", str(path), f"a whole master keyring ({error!r})") from error


def _fresh_key(not_before_ns: int) -> MasterKey:
    validity = Validity(1 + secrets.randbelow(2**32 - 1), not_before_ns, not_before_ns + LIFETIME_S * SECOND_NS)
    return MasterKey(validity, secrets.token_bytes(KEY_BYTES))


def _retire(key: MasterKey, at_ns: int) -> MasterKey:
    not_after_ns = min(key.validity.not_after_ns, at_ns)
    return replace(key, validity=replace(key.validity, not_after_ns=not_after_ns))


def _key_from(row: dict[str, Any]) -> MasterKey:
    return MasterKey(
        Validity(int(row["id"]), int(row["not_before_ns"]), int(row["not_after_ns"])), bytes.fromhex(row["secret"])
    )
