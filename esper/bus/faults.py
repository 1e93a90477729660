"""What Redis answers when it can't, as errors of ours: one sentence each, without the password."""

from __future__ import annotations

import re
from collections.abc import Sequence

from redis import exceptions

from esper.bus.client.credentials import user_told, without_password as without_password
from esper.errors import BusError


class UnavailableError(BusError):
    """The server can't do now what it may well do later: worth trying again."""


class LostError(UnavailableError):
    """The connection is gone, or the server can't serve yet. Whether the last command took effect is not known."""


class UntrustedError(LostError):
    """A certificate does not hold, the server's or ours: somebody has to renew it before anything is served."""


class NoGroupError(BusError):
    """The consumer group is gone, and with it what it knew."""


class ForbiddenError(BusError):
    """The server's rules do not let this user do that; it may do other things."""


class NoScriptError(BusError):
    """The server does not know the script; it was restarted."""


class ReadOnlyError(UnavailableError):
    """The server is a replica by now."""


class OutOfMemoryError(UnavailableError):
    """The server refuses writes until memory is freed."""


class FailingDiskError(UnavailableError):
    """The server refuses writes because it cannot keep them."""


class NoReplicasError(UnavailableError):
    """The server refuses writes because too few replicas would have them."""


class NoIdLeftError(UnavailableError):
    """A stream holds the last id there is, until an administrator takes it out."""


class ElsewhereError(UnavailableError):
    """The node does not hold the slot, and did nothing: another one does. `once`: only for the command at hand."""

    def __init__(self, at: str, host: str, port: int, *, once: bool) -> None:
        self.host, self.port, self.once = host, port, once
        super().__init__(
            f"Redis at {at} is a node of a Cluster, and {host}:{port} holds this key; expected redis+cluster://"
        )


FATAL = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.MaxConnectionsError)
LOST = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    OSError,
)


FAILURES = (exceptions.RedisError, OSError, RuntimeError)
"""What a command may raise. RuntimeError: uvloop's, for a write to a connection that was reset a moment ago."""
CREDENTIALS = {
    "Authentication required": (
        "a password, in ESPER_REDIS_PASSWORD or in the URL, and ESPER_REDIS_USERNAME where it is that of a named user"
    ),
    "username-password": (
        "the password of a user that the server knows: in the file that ESPER_REDIS_PASSWORD_FILE names, in "
        "ESPER_REDIS_USERNAME and ESPER_REDIS_PASSWORD, or in the URL"
    ),
    "without any password configured": "no password, neither in ESPER_REDIS_PASSWORD nor in the URL",
}
"""Words of a server that turns us away, and what it is to be told instead."""
CLOSED = "the handler is closed"
UNTRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED\] certificate verify failed: (?P<why>.+?)\.? \(_ssl")
UNWANTED = re.compile(r"alert (?P<why>[a-z ]*certificate[a-z ]*|unknown ca)\b")


def translated(error: exceptions.RedisError | OSError | RuntimeError, url: str) -> BusError:
    """The error of ours that says what the library's says."""
    at, said = without_password(url), str(error)
    if isinstance(error, RuntimeError):
        if CLOSED not in said:
            raise error
        return LostError(f"Redis at {at} cannot be reached: the connection was reset")
    if isinstance(error, FATAL) or isinstance(
        error.__cause__, FATAL
    ):  # the library wraps what it meets while connecting
        return turned_away(at, said)
    if isinstance(error, exceptions.AskError):
        return ElsewhereError(at, error.host, error.port, once=not isinstance(error, exceptions.MovedError))
    if isinstance(error, exceptions.BusyLoadingError):
        return LostError(f"Redis at {at} is still loading its data")
    if said.startswith("BUSY "):
        return LostError(f"Redis at {at} is held up by somebody's script, and serves nobody: SCRIPT KILL ends it")
    if untrusted := UNTRUSTED.search(said):
        expected = "one made for this host, by an authority that ESPER_REDIS_CA names"
        return UntrustedError(
            f"Redis at {at} shows a certificate that does not hold ({untrusted['why']}); expected {expected}"
        )
    if unwanted := UNWANTED.search(said):
        return UntrustedError(hangs_up(at, f" ({unwanted['why'].strip()})"))
    if isinstance(error, LOST):
        return LostError(f"Redis at {at} cannot be reached: {said or 'no answer in time'}")
    # Up to 6.2 a script wraps what it meets; UNBLOCKED ends a blocking read at the moment of the change.
    if "UNBLOCKED" in said and "no longer exists" in said:
        return NoGroupError(f"Redis at {at}: {said}")
    if isinstance(error, exceptions.ReadOnlyError) or "READONLY" in said or said.startswith("UNBLOCKED"):
        return ReadOnlyError(
            f"Redis at {at} is read-only: a replica, or out of replicas itself; give the primary's URL"
        )
    if isinstance(error, exceptions.NoPermissionError):
        expected = "the user of a role that may (ESPER_REDIS_USERNAME and ESPER_REDIS_PASSWORD, made by esper acl)"
        return ForbiddenError(f"Redis at {at} refuses {user_told(url)}: {said}; expected {expected}")
    return of_answer(at, said, error)


def naming_its_key(error: exceptions.RedisError, words: Sequence[bytes | str]) -> exceptions.RedisError:
    """The same error; of a key that holds something else, which the server leaves out, with its name."""
    if not str(error).startswith("WRONGTYPE"):
        return error
    shown = [word.decode(errors="replace") if isinstance(word, bytes) else word for word in words]
    behind = shown.index("STREAMS") if "STREAMS" in shown else int(shown[0] in ("XGROUP", "XINFO"))
    return exceptions.ResponseError(f"key {shown[behind + 1]} holds something else than {shown[0]} is for")


def hangs_up(at: str, why: str = "") -> str:
    """What is said of a server that does not take our certificate."""
    asked = "a client certificate that its authority has signed (ESPER_REDIS_CERT, ESPER_REDIS_KEY)"
    return f"Redis at {at} hangs up after the TLS handshake{why}; expected {asked}"


def turned_away(at: str, said: str) -> BusError:
    """By a server that does not let us in; where that is for a user or a password, with what was expected."""
    for words, expected in CREDENTIALS.items():
        if words in said:
            return BusError(f"Redis at {at} refuses us: {said.partition('.')[0]}; expected {expected}")
    return BusError(f"Redis at {at} refuses us: {said}")


def of_answer(at: str, said: str, error: Exception) -> BusError:
    """The error of ours for a refusal that the library knows only by its text, or by a class of newer versions."""
    if isinstance(error, exceptions.NoScriptError):
        return NoScriptError(f"Redis at {at} does not know the script")
    if said.startswith("unknown command") and "SENTINEL" in said:
        return BusError(f"Redis at {at} is no Sentinel; expected redis:// for a server of its own")
    if "NOGROUP" in said:
        return NoGroupError(f"Redis at {at}: {said}")
    if isinstance(error, exceptions.OutOfMemoryError) or "OOM" in said or "maxmemory" in said:
        return OutOfMemoryError(f"Redis at {at} is out of memory: free some, or raise its maxmemory")
    if "NOREPLICAS" in said:
        return NoReplicasError(f"Redis at {at} has fewer good replicas than min-replicas-to-write, and refuses writes")
    if "exhausted the last possible ID" in said:
        return NoIdLeftError(
            f"Redis at {at} has no id left in a stream, as somebody added the last: esper doctor RUN says more"
        )
    if "MISCONF" in said:
        return FailingDiskError(f"Redis at {at} cannot write to its disk, and refuses writes until it can")
    return BusError(f"Redis at {at} answered: {said}")
