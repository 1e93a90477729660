"""Signs and checks a run's checkpoints with the keys of its workers."""

from __future__ import annotations

from collections.abc import Callable

from nacl.exceptions import BadSignatureError

from esper.errors import CheckpointError, RefusedError, SettingError
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.tolaria.checkpoints.signing import Signature


class KeyringSigner:
    """The Ed25519 key of role worker: rank 0's, as all ranks of a run hold the same."""

    def __init__(self, keyring: RoleKeyring, look: Callable[[], object] = lambda: None) -> None:
        """`look` is called before each use: the keyring may have adopted newer keys then."""
        self._keyring, self._look = keyring, look

    @property
    def run_id(self) -> str:
        return self._keyring.run_id

    def sign(self, message: bytes, made_ns: int) -> Signature:
        """SettingError where the keyring may not sign, or none of its keys is valid now."""
        self._look()
        key_id, _ = self._keyring.seal_key(Domain.STATE, Role.WORKER, made_ns)
        key = self._keyring.signing_key(key_id, Role.WORKER)
        if key is None:
            raise SettingError(
                "keyring", f"for {', '.join(self._keyring.roles)}", "one for worker, to sign checkpoints"
            )
        return Signature(key_id, key.sign(message).signature)

    def check(self, signature: Signature, message: bytes, made_ns: int) -> None:
        self._look()
        try:
            self._keyring.public_key(signature.key_id, Role.WORKER).verify(message, signature.ed25519)
            valid = self._keyring.validity(signature.key_id).opens_at(made_ns)
        except RefusedError as error:
            raise CheckpointError(f"it is signed with key {signature.key_id:08x}, which this run has not") from error
        except BadSignatureError as error:
            raise CheckpointError("its manifest is not what its signature was made for") from error
        if not valid:
            raise CheckpointError(f"it is signed with key {signature.key_id:08x}, not valid at {made_ns} ns")
