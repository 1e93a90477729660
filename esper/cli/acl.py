"""`esper acl`: an ACL file for Redis, with a user for each role of a run, and the passwords of these users."""

from __future__ import annotations

import asyncio
import json as notation
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from secrets import token_urlsafe
from typing import Annotated

import typer

from esper.bus import connect
from esper.bus.acl import ADMIN, NOBODY, USERS, admin, hashed, line, user_name
from esper.bus.client.credentials import PASSWORD, PASSWORD_FILE, USERNAME, completed
from esper.bus.faults import without_password
from esper.bus.names import checked_run
from esper.bus.passwords import file_named, write
from esper.bus.protocol import pairs_of
from esper.errors import SettingError
from esper.leyline.keys.keyfile import replace_whole

KEPT = re.compile(rf"^{PASSWORD}=(?P<password>[A-Za-z0-9_-]{{43}})$", re.MULTILINE)


def acl(
    run: Annotated[str, typer.Argument(help="Id of the run, as `esper keys derive` is told it.")],
    out: Annotated[Path, typer.Option(help="The ACL file. Users of other runs that stand in it stay.")],
    passwords: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where each user's variables go; default: beside --out.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="New passwords; the old ones are good until this is said again without it.")
    ] = False,
    load: Annotated[
        str | None, typer.Option(metavar="URL", help="Have this Redis load it, before a new password is handed out.")
    ] = None,
    durable: Annotated[
        bool, typer.Option("--durable", help="Let processes read Redis's settings, as ESPER_DURABILITY=durable must.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a user.")] = False,
) -> None:
    """Write an ACL file by which each role touches its own streams alone. For Redis 7.0 and newer."""
    checked_run(run)
    others = users_of(out)
    folder = passwords or out.parent / "passwords"
    users = {user_name(run, role): role for role in USERS} | {ADMIN: ADMIN}
    make_folder(folder)
    held = passwords_in(folder, users)
    # Whoever has the server load the file is let in by what it knows: without --load that password stays.
    new = {name: token_urlsafe(32) for name in users if name not in held or (fresh and (name != ADMIN or load))}
    good = good_hashes(held, new, others, fresh=fresh)
    lines = {
        name: admin(good[name]) if role == ADMIN else line(run, role, good[name], tells_settings=durable)
        for name, role in users.items()
    }
    # First what lets in both, then the new ones: whatever ends this between two files, each file's password is good.
    replace_acl_file(out, "".join(f"{each}\n" for each in {**others, "default": NOBODY, **lines}.values()))
    if load is not None:
        asyncio.run(reload_acl(load, held.get(ADMIN, ""), good))
    for name, password in new.items():
        write(file_named(folder, name), name, password, "--passwords")
    tell_users(users, folder, json)
    if not json and load is None:
        typer.echo(f"{out}: name it as `aclfile` in redis.conf; a server that has it already: ACL LOAD")


def tell_users(users: Mapping[str, str], folder: Path, as_json: bool) -> None:
    """Each user's role, and where its variables lie."""
    for name, role in users.items():
        told = {"user": name, "role": role, "variables": str(file_named(folder, name))}
        typer.echo(notation.dumps(told) if as_json else f"{role:12} {told['variables']}")


def good_hashes(
    held: Mapping[str, str], new: Mapping[str, str], lines: Mapping[str, str], *, fresh: bool
) -> dict[str, list[str]]:
    """By which each user is let in: by the password that it will hold, while it gets a fresh one also as until now."""
    good = {name: [hashed(password)] for name, password in {**held, **new}.items()}
    if not fresh:
        return good
    for name, password in held.items():
        good[name].append(hashed(password))
    return {name: [*dict.fromkeys([*hashes, *hashes_of(lines.get(name, ""))])] for name, hashes in good.items()}


async def reload_acl(url: str, password: str, good: Mapping[str, Sequence[str]]) -> None:
    """Have each server load its ACL file, as the administrator where there is one; SettingError: it is not this one."""
    admin_user = {USERNAME: ADMIN, PASSWORD: password, PASSWORD_FILE: ""} if password else {}
    at = completed(url, {**os.environ, **admin_user})
    async with connect.writer(at) as redis:
        for server in await redis.servers():
            await server.execute_command("ACL", "LOAD")
    async with connect.writer(at) as redis:  # the server drops the connections of users with a name
        for server in await redis.servers():
            for name, hashes in good.items():
                if not {*hashes} <= await hashes_at(server, name):
                    wanted = f"a server whose aclfile this is: it loads one by which {name} is not let in"
                    raise SettingError("--load", without_password(url), wanted)


async def hashes_at(server: connect.Redis, name: str) -> set[str]:
    """Passwords that the server lets a user in by."""
    told = pairs_of(await server.execute_command("ACL", "GETUSER", name))
    return {f"#{each.decode().removeprefix('#')}" for each in told.get(b"passwords", ())}


def passwords_in(folder: Path, users: Iterable[str]) -> dict[str, str]:
    """Those that the users' files hold."""
    found = {name: password_in(file_named(folder, name)) for name in users}
    return {name: password for name, password in found.items() if password}


def password_in(path: Path) -> str:
    """The one that a user's file holds; empty where there is none yet."""
    try:
        found = KEPT.search(path.read_text())
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("--passwords", str(path), f"a file that can be read ({error})") from error
    return "" if found is None else found["password"]


def make_folder(folder: Path) -> None:
    """Where passwords go, before anything is changed that they belong to."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError("--passwords", str(folder), f"a folder to write in ({error.strerror})") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SettingError("--passwords", str(folder), "a folder to write in")


def hashes_of(written: str) -> list[str]:
    """Passwords that a line lets in."""
    return [word for word in written.split() if word.startswith("#")]


def users_of(path: Path) -> dict[str, str]:
    """Lines of an ACL file by user; none where there is no file yet."""
    if path.is_fifo():  # opened it would wait for a writer, and the file that replaces it be read by nobody
        raise SettingError("--out", str(path), "a file, and no pipe: a server reads it whole, and more than once")
    try:
        lines = path.read_text().splitlines() if path.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("--out", str(path), f"an ACL file that can be read ({error})") from error
    found = {}
    for each in filter(str.strip, lines):
        words = each.split()
        if words[0] != "user" or len(words) < 2:  # the server would refuse the file as a whole
            raise SettingError("--out", str(path), f"an ACL file, whose lines begin with user; one is {each[:40]!r}")
        found[words[1]] = each
    return found


def replace_acl_file(path: Path, text: str) -> None:
    """A whole file, or the one before. A hash of 256 random bits tells nothing, but users of somebody else's may have
    shorter passwords: owner and mode of a file that is there already stay."""
    before = path.stat() if path.exists() else None
    replace_whole(path, text, "--out", 0o666 if before is None else 0o600, before)
