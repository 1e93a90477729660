"""Seals whatever it is told to, right or wrong, by the layout of the wire and not by the code that is under test."""

from __future__ import annotations

import hmac
import random
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from nacl.signing import SigningKey

from esper.leyline import contracts as pb
from esper.leyline.keys.derive import KEY_BYTES, seal_key, signing_key
from esper.leyline.keys.keyring import SECOND_NS, MasterKey, MasterKeyring, RoleKeyring
from esper.leyline.keys.rolekeys import Validity
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Sealer

SIGNED = 1
DAY_NS = 86_400 * SECOND_NS
NUM_RECENT = 64
SPARE_FOR = 50  # harmed copies of one message
_HEAD = struct.Struct(">2sBBIBHQQQBQI")


@dataclass(frozen=True, slots=True)
class Draft:
    """Everything before the signature, each part as it is to be written."""

    key_id: int
    incarnation: int
    sequence: int
    issued_at_ns: int
    names: bytes
    body: bytes
    magic: bytes = b"ES"
    version: int = 1
    flags: int = SIGNED
    domain: int = 1
    kind: int = 101
    deadline_kind: int = 0
    deadline: int = 0
    roster: int = 0
    body_length: int | None = None  # None: what it is

    def packed(self) -> bytes:
        """The bytes that a signature covers."""
        head = _HEAD.pack(
            self.magic,
            self.version,
            self.flags,
            self.key_id,
            self.domain,
            self.kind,
            self.incarnation,
            self.sequence,
            self.issued_at_ns,
            self.deadline_kind,
            self.deadline,
            self.roster,
        )
        length = len(self.body) if self.body_length is None else self.body_length
        return head + self.names + struct.pack(">I", length) + self.body


class Secrets:
    """Three keys drawn from a seed: one retired, one that holds for days around a moment, one not valid yet."""

    def __init__(self, run: str, now_ns: int, chance: random.Random) -> None:
        self.run = run
        bounds = [(-9, -4), (-5, 5), (4, 9)]
        self._keys = [
            MasterKey(
                Validity(chance.getrandbits(32), now_ns + start * DAY_NS, now_ns + end * DAY_NS),
                chance.randbytes(KEY_BYTES),
            )
            for start, end in bounds
        ]
        self.retired, self.valid, self.early = (key.validity.key_id for key in self._keys)
        self._secrets = {key.validity.key_id: key.secret for key in self._keys}
        self._known = cache(self._derived)

    def keyring(self, *roles: Role) -> RoleKeyring:
        return MasterKeyring(self._keys).derive(self.run, roles)

    def seal_key(self, key_id: int, domain: int, role: bytes, run: str) -> bytes:
        """The key that belongs to what a header says; where it says nonsense, that of a valid command."""
        if key_id not in self._secrets or domain not in set(Domain) or role.decode(errors="replace") not in set(Role):
            return self._known(self.valid, Domain.COMMAND, Role.CONTROLLER, run)
        return self._known(key_id, Domain(domain), Role(role.decode()), run)

    def signing_key(self) -> SigningKey:
        return signing_key(self._secrets[self.valid], self.valid, self.run, Role.CONTROLLER)

    def _derived(self, key_id: int, domain: Domain, role: Role, run: str) -> bytes:
        return seal_key(self._secrets[key_id], key_id, run, domain, role)


class Forge:
    """Two producers of one run: one seals as producers do, the other by hand. Sequences are never used twice."""

    def __init__(self, secrets: Secrets, clock_ns: Callable[[], int], chance: random.Random) -> None:
        self.secrets, self.clock_ns, self.chance = secrets, clock_ns, chance
        self.recent: deque[bytes] = deque(maxlen=NUM_RECENT)  # genuine, and on the stream
        self.names = packed_names(secrets.run, Role.CONTROLLER, "forge", "*")
        self._sealer = Sealer(
            secrets.keyring(Role.CONTROLLER),
            Role.CONTROLLER,
            "genuine",
            incarnation=chance.getrandbits(64),
            clock_ns=clock_ns,
        )
        self._signer = secrets.signing_key()
        self._incarnation = chance.getrandbits(64)
        self._sequence = self._num_commands = 0
        self._spare, self._spare_for = b"", 0

    def command(self) -> pb.AdaptationCommand:
        """A command that nobody has sent yet. Its last field is one that it needs."""
        self._num_commands += 1
        return pb.AdaptationCommand(
            version=1,
            command_id=f"c{self._num_commands}",
            command_type=pb.CommandType.COMMAND_SEED,
            priority=pb.MessagePriority.MESSAGE_PRIORITY_NORMAL,
            seed_command=pb.SeedCommand(seed_id="s0", operation=pb.SeedOperation.SEED_OP_CULL),
        )

    def genuine(self) -> tuple[str, bytes]:
        """Id and sealed bytes of a good command, of both producers in turn."""
        command = self.command()
        if self._num_commands % 2:
            return command.command_id, self._sealer.seal(command)
        return command.command_id, self.sealed(self.draft(command.SerializeToString()))

    def spare(self) -> bytes:
        """Sealed bytes that are good, and never sent."""
        if self._spare_for == 0:
            self._spare, self._spare_for = self._sealer.seal(self.command()), SPARE_FOR
        self._spare_for -= 1
        return self._spare

    def sequence_met(self) -> int:
        """Of a message sealed by hand that is on the stream."""
        incarnation = self._incarnation.to_bytes(8)
        return int.from_bytes(self.chance.choice([each for each in self.recent if each[11:19] == incarnation])[19:27])

    def draft(self, body: bytes | None = None) -> Draft:
        """The next message of the producer that seals by hand; without a body, a good command."""
        self._sequence += 1
        return Draft(
            self.secrets.valid,
            self._incarnation,
            self._sequence,
            self.clock_ns(),
            self.names,
            self.command().SerializeToString() if body is None else body,
        )

    def sealed(
        self, draft: Draft, *, key: bytes | None = None, role: str = Role.CONTROLLER, signature: bytes | None = None
    ) -> bytes:
        """Under the key that belongs to the header, and `role`, unless another is given."""
        data = draft.packed()
        if draft.flags & SIGNED:
            data += self._signer.sign(data).signature if signature is None else signature
        if key is None:
            key = self.secrets.seal_key(draft.key_id, draft.domain, role.encode(), self.secrets.run)
        return data + hmac.digest(key, data, "sha256")


def packed_names(*names: str) -> bytes:
    """Each behind its length in one byte."""
    return named([name.encode() for name in names])


def named(names: Sequence[bytes]) -> bytes:
    return b"".join(bytes([len(name)]) + name for name in names)
