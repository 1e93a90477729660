"""Who may come to a Redis, and as whom: what it tells us, and what it tells somebody who gives no name."""

from __future__ import annotations

from typing import Any

from esper.bus import connect
from esper.bus.client.credentials import nameless
from esper.bus.connect import Redis
from esper.bus.faults import ForbiddenError, UnavailableError
from esper.bus.protocol import pairs_of
from esper.doctor.facts import DefaultUser
from esper.errors import BusError

DEFAULT = "default"
UNKNOWN = ("Authentication required", "username-password")
"""In what Redis says to whom it does not know."""
ASKED = ("ACL", "GETUSER", DEFAULT)


async def whoami(redis: Redis) -> str | None:
    """The user that we are to the server: as we came where it does not tell, as those of `esper acl` may not ask."""
    reply: bytes | None = await told(redis, "ACL", "WHOAMI")
    return connect.user_named(redis.url) if reply is None else reply.decode()


async def has_named_users(redis: Redis, user: str | None) -> bool:
    """Whether there is one beside the default user: ourselves, or one whom the server names."""
    names = await told(redis, "ACL", "USERS") or []
    return user not in (None, DEFAULT) or any(name != DEFAULT.encode() for name in names)


async def default_user(redis: Redis) -> DefaultUser | None:
    """As the server tells us, or somebody without a name; None: neither of us."""
    reply = await told(redis, *ASKED)
    if reply is not None:
        return read(reply)
    async with connect.writer(nameless(redis.url)) as stranger:
        try:
            return read(await stranger.ask(ASKED))
        except ForbiddenError:
            return DefaultUser(lets_in=True, all_rights=False)
        except UnavailableError:
            return None
        except BusError:  # it asks for a password
            return DefaultUser(lets_in=False, all_rights=None)


def is_shut_out(error: BusError) -> bool:
    """Whether the server answers and lets us do nothing: it wants a user or another password, or gives no rights."""
    return isinstance(error, ForbiddenError) or any(words in str(error) for words in UNKNOWN)


def read(reply: Any) -> DefaultUser:
    """Of a reply to ACL GETUSER, in which patterns are a list up to Redis 6.2, and a string from 7.0 on."""
    told = pairs_of(reply)
    keys = told[b"keys"] if isinstance(told[b"keys"], bytes) else b" ".join(told[b"keys"])
    all_rights = told[b"commands"] == b"+@all" and keys in (b"~*", b"*")
    return DefaultUser({b"on", b"nopass"} <= set(told[b"flags"]), all_rights)


async def told(redis: Redis, *words: str) -> Any:
    """The reply; None where the server keeps it to itself."""
    try:
        return await redis.ask(words)
    except UnavailableError:
        raise
    except BusError:
        return None
