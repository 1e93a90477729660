"""Which runs are live: a directory each on this machine, and a hash in Redis for those who are told where that is."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Any

from esper.bus.client.credentials import completed
from esper.bus.embedded import LONGEST_SOCKET_PATH
from esper.bus.names import RUNS_KEY, checked_name, checked_run, new_run_id
from esper.bus.passwords import of_role
from esper.errors import SettingError, UnknownRunError

if TYPE_CHECKING:
    from esper.bus import connect

RECORD, LOCK, KEYS, SOCKET, PARTING = "run.json", "lock", "keys", "redis.sock", "parting"
"""In a run's directory; the last is there once nothing is left of the run but the keeping of its log."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One live embedded run: where its Redis listens, and where its role keyrings lie."""

    run_id: str
    name: str
    url: str
    directory: Path
    started_ns: int = 0
    passwords: str = ""
    """Folder of the files of its Redis users; empty: it has none."""

    @property
    def reach(self) -> str:
        """The URL for whoever looks at the run, or steers it."""
        return self.reach_as("operator")

    def reach_as(self, role: str) -> str:
        """The URL with the user of a role, where the run has any; else with what ESPER_REDIS_ variables of this process
        add to it. An embedded server asks for nothing."""
        if self.passwords:
            user = of_role(Path(self.passwords), self.run_id, role, "passwords")
            return completed(self.url, {**os.environ, **user})
        return self.url if self.has_own_redis else completed(self.url, os.environ)

    @property
    def has_own_redis(self) -> bool:
        """Whether it is the embedded server of the run, and none outside."""
        return self.url == f"unix://{self.directory}/{SOCKET}"

    def keyring(self, role: str) -> Path:
        """Path of a role's keyring."""
        return self.directory / KEYS / f"{role}.json"


def user_directory() -> Path:
    """Where this user's live runs stand: below $XDG_RUNTIME_DIR where one can write there, else in /tmp; private."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    if os.environ.get("XDG_RUNTIME_DIR") and runtime.is_dir() and os.access(runtime, os.W_OK):
        return private(runtime / "esper")
    return private(Path(tempfile.gettempdir()) / f"esper-{os.getuid()}")


def private(directory: Path) -> Path:
    """The directory, made if need be; refused where it is a link, another user's, or open to others."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not stat.S_IMODE(found.st_mode) & 0o077
    if not ours:
        raise SettingError(
            "runtime directory", str(directory), "a directory of your own that others cannot enter (0700)"
        )
    return directory


class Registration:
    """A run's directory, held by locks of this process: the run is live for as long as the process is."""

    def __init__(self, record: RunRecord, locks: ExitStack) -> None:
        self.record, self._locks = record, locks

    def close(self) -> None:
        """Take the run off the list, with its keys and whatever else lies in its directory."""
        self._locks.close()

    def __enter__(self) -> RunRecord:
        return self.record

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def register(
    name: str, *, started_ns: int, url: str | None = None, run_id: str = "", passwords: str = ""
) -> Registration:
    """List a new run of this name. Its Redis is to be started in `record.directory`, unless a URL says where it is.

    `run_id`: of a run that goes on, as its keys say; refused while it is listed.
    """
    root, run_id = user_directory(), checked_run(run_id) if run_id else new_run_id(name)
    if any(record.run_id == run_id for record in list_live()):
        raise SettingError("run", run_id, "a run that nobody keeps going yet")
    directory = root / run_id
    socket = directory / SOCKET
    if len(bytes(socket)) > LONGEST_SOCKET_PATH:
        raise SettingError("path of the Redis socket", str(socket), f"at most {LONGEST_SOCKET_PATH} bytes")
    record = RunRecord(run_id, name, url or f"unix://{socket}", directory, started_ns, passwords)
    aside = root / f".{run_id}.{token_hex(4)}"  # not seen by others before it is complete and locked
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, aside, ignore_errors=True)
        try:
            undo.push(locks := written(aside, record))
        except OSError as error:
            raise SettingError("runtime directory", str(root), f"one with room for a run ({error.strerror})") from error
        try:
            aside.rename(directory)
        except OSError as error:  # another process was faster
            raise SettingError("run", run_id, f"a run that nobody keeps going yet ({error.strerror})") from error
        undo.pop_all()
    locks.callback(shutil.rmtree, directory, ignore_errors=True)
    return Registration(record, locks)


def written(aside: Path, record: RunRecord) -> ExitStack:
    """A run's directory with its record; the locks on it, which are held.

    That of the directory itself is for systemd-tmpfiles, which takes from /tmp what is old and not locked.
    """
    (aside / KEYS).mkdir(mode=0o700, parents=True)
    with ExitStack() as locks:
        for path, flags in ((aside, os.O_DIRECTORY), (aside / LOCK, os.O_RDWR | os.O_CREAT)):
            lock = os.open(path, flags | os.O_CLOEXEC, 0o600)
            locks.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
        (aside / RECORD).write_text(json.dumps({**asdict(record), "directory": str(record.directory)}))
        return locks.pop_all()


def list_live() -> list[RunRecord]:
    """Live runs, newest first. Forgets the dead ones: their directories hold keys that nobody needs any more."""
    records = []
    for directory in user_directory().iterdir():
        if directory.name.startswith(".") or not directory.is_dir():
            continue
        if is_held(directory / LOCK):
            with suppress(FileNotFoundError):  # it ended between the two looks
                records.append(read_record(directory))
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return sorted(records, key=lambda record: record.started_ns, reverse=True)


def resolve(run: str) -> RunRecord:
    """The live run of this id, or the newest of this name."""
    live = list_live()
    for record in live:
        if run in (record.run_id, record.name):
            return record
    raise UnknownRunError(run, [record.run_id for record in live])


def is_held(lock: Path) -> bool:
    """Whether a live process holds the lock. Shared, so that those who ask don't see one another."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_record(directory: Path) -> RunRecord:
    """The record of a live run."""
    facts = json.loads((directory / RECORD).read_text())
    place = Path(facts["directory"])
    return RunRecord(
        facts["run_id"], facts["name"], facts["url"], place, facts["started_ns"], facts.get("passwords", "")
    )


async def announce_outside(redis: connect.Redis, name: str, run_id: str) -> None:
    """Make the name stand for this run on its Redis."""
    await redis.execute_command("HSET", RUNS_KEY, checked_name("run", name), run_id)


async def announce_again(redis: connect.Redis, name: str, run_id: str) -> bool:
    """List a run that is on no list any more, as after FLUSHALL; never in the place of another run of its name."""
    return bool(await redis.execute_command("HSETNX", RUNS_KEY, name, run_id))


async def resolve_outside(redis_url: str, run: str) -> str:
    """The id of a run on an outside Redis, by name or id."""
    from esper.bus import connect  # with redis, which a trainer does without that looks for its run on this machine

    async with connect.writer(redis_url) as redis:
        listed: Any = await redis.hgetall(RUNS_KEY)
    known: dict[str, str] = {name.decode(): run_id.decode() for name, run_id in listed.items()}
    if run in known.values():
        return run
    if run not in known:
        raise UnknownRunError(run, sorted(known.values()))
    return known[run]


async def forget_outside(redis: connect.Redis, name: str, run_id: str) -> None:
    """Take a run that has ended off the list, unless the name stands for a newer one by now."""
    if await redis.execute_command("HGET", RUNS_KEY, name) == run_id.encode():
        await redis.execute_command("HDEL", RUNS_KEY, name)
