"""The token that lets a browser publish commands; without one a page only shows."""

from __future__ import annotations

import hmac
import os
from hashlib import sha256
from pathlib import Path

from esper.errors import SettingError
from esper.leyline.keys.keyfile import private_text

VARIABLE = "ESPER_WEB_TOKEN"
SHORTEST = 16
_SCHEME = "bearer "


class Token:
    """Compares in constant time, whatever the length of what is given. Says itself to nobody."""

    def __init__(self, secret: str) -> None:
        self._digest = sha256(secret.encode()).digest()

    def allows(self, authorization: str) -> bool:
        """Whether an Authorization header carries the token, as `Bearer TOKEN`.

        No cookie and no form field is looked at: what another site makes a browser send has no such header.
        """
        scheme, given = authorization[: len(_SCHEME)], authorization[len(_SCHEME) :]
        met = sha256(given.strip().encode()).digest()
        return scheme.lower() == _SCHEME and hmac.compare_digest(met, self._digest)


def chosen(path: Path | None) -> Token | None:
    """From a file that only its owner can read, else from the environment; None: neither is given."""
    if path is not None:
        return Token(_checked("--token-file", private_text(path, "--token-file").strip()))
    given = os.environ.get(VARIABLE, "").strip()
    return Token(_checked(VARIABLE, given)) if given else None


def _checked(name: str, secret: str) -> str:
    if len(secret) < SHORTEST:
        raise SettingError(name, f"{len(secret)} characters", f"at least {SHORTEST}, as of openssl rand -hex 16")
    if not (secret.isascii() and secret.isprintable()):  # a header carries it
        raise SettingError(name, "a token of other characters", "printable ASCII, as of openssl rand -hex 16")
    return secret
