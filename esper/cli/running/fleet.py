"""One run on this machine: listed, with its keys and its Redis, for as long as somebody keeps it going."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from esper.bus import connect, names, runs
from esper.bus.client.credentials import PASSWORD, PASSWORD_FILE, USERNAME
from esper.bus.embedded import EmbeddedRedis
from esper.bus.faults import LostError, without_password
from esper.bus.group.inbox import Inbox
from esper.cli.running.plan import LocalRun
from esper.errors import EsperError, SettingError
from esper.leyline.keys.keyring import KEYRINGS, MasterKeyring, RoleKeyring
from esper.runtime.crew import runfile
from esper.runtime.crew.runfile import EMBEDDED, RunFile
from esper.runtime.history import logbook

AWAY_S = 3.0
"""A Redis outside that does not answer for so long is waited for no more at a run's end: what it holds stays there."""

SOON_S = 1.0
"""So long a Redis outside may take to answer at the start before whoever waits is told so."""

LISTED_EVERY_S = 5.0
"""Between two looks whether the run can still be found on a Redis outside, which may have lost it."""

STORED = "redis"
"""Below runs/<id>: what the Redis of a run with keys of its own holds, as the run can be begun again."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the run file asks for, and what the run has of its own. `redis` None: one outside."""

    read: RunFile
    local: LocalRun
    redis: EmbeddedRedis | None

    @property
    def record(self) -> runs.RunRecord:
        return self.local.record

    @property
    def directory(self) -> Path:
        return self.local.directory


def example() -> str:
    """The run file of the demo, with every key that there is."""
    return files("esper.examples").joinpath("run.toml").read_text(encoding="utf-8")


def example_file(**changes: object) -> RunFile:
    """The same, read; `changes` go before it."""
    return runfile.parse(example(), "run.toml").model_copy(update=changes)


class LogWait:
    """How a log that goes with its Redis is waited for on a full disk: until there is room, or one is in a hurry."""

    def __init__(self) -> None:
        self.hurried = asyncio.Event()
        self.is_log_lost = False


@asynccontextmanager
async def fleet(read: RunFile, log_wait: LogWait | None = None) -> AsyncIterator[Fleet]:
    """A listed run with its Redis, keys and groups; at the end its log is kept, and only then its Redis ended.

    `log_wait`: of a log that goes with its Redis; None: it does not wait for room.
    """
    url = None if read.redis == EMBEDDED else read.redis
    run_id = "" if read.keys is None else run_of_keyrings(read.keys)
    passwords = "" if read.passwords is None else str(folder_of(read, read.passwords))
    with runs.register(read.name, started_ns=time.time_ns(), url=url, run_id=run_id, passwords=passwords) as record:
        directory = read.runs_dir.absolute() / record.run_id
        try:
            directory.mkdir(parents=True, exist_ok=bool(run_id))
            if stored := directory / STORED if run_id and url is None else None:
                stored.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            wanted = f"a folder where a run's own can be made ({error.strerror})"
            raise SettingError("runs_dir", str(read.runs_dir), wanted) from error
        hold_keys(record, read.keys)
        with redis_of(record, url, stored) as redis:
            async with announced(record, url):
                await open_groups(read, record)
                try:
                    yield Fleet(read, LocalRun(record, directory), redis)
                finally:
                    is_last = url is None and stored is None  # what its Redis holds goes with it
                    await keep_log(record, directory, log_wait if is_last else None)


def patience_s(redis: EmbeddedRedis | None) -> float:
    """How long an answer is waited for at the end of a run. What its own Redis holds is lost with it."""
    return AWAY_S if redis is None else connect.WRITE_S


async def keep_log(record: runs.RunRecord, directory: Path, log_wait: LogWait | None = None) -> None:
    """Leave the run's log there. Where that can't be, it is said: the run has ended all the same."""
    with suppress(OSError):
        (record.directory / runs.PARTING).touch()
    try:
        if not record.has_own_redis:
            async with connect.client(record.reach, AWAY_S) as redis:
                await connect.wait_ready(redis, 0.0)
        reach = record.reach
    except EsperError as error:  # it is away, or the file with the password for it is gone by now
        log.warning("log.not_kept", run=record.run_id, why=str(error))
        return
    hurried, keyring = None if log_wait is None else log_wait.hurried, record.keyring("observer")
    is_kept = await logbook.keep(reach, record.run_id, keyring, directory / logbook.LOG, hurried)
    if log_wait is not None:
        log_wait.is_log_lost = not is_kept


@contextmanager
def redis_of(record: runs.RunRecord, url: str | None, stored: Path | None) -> Iterator[EmbeddedRedis | None]:
    """The run's own, started, on what it has stored there before; nothing where there is one outside."""
    if url is not None:
        yield None
        return
    options = {} if stored is None else {"dir": str(stored), "logfile": str(record.directory / "redis.log")}
    with EmbeddedRedis(record.directory, options=options) as redis:
        yield redis


@asynccontextmanager
async def announced(
    record: runs.RunRecord, url: str | None, listed_every_s: float = LISTED_EVERY_S
) -> AsyncIterator[None]:
    """On its Redis the run is found by its name: by its own processes, which are told where that is.

    On one outside also from other machines, and again where that lost its list.
    """
    async with connect.writer(record.reach) as redis:
        await wait_for_redis(redis, record.run_id)
        await runs.announce_outside(redis, record.name, record.run_id)
    if url is None:
        yield
        return
    ending = asyncio.Event()
    listing = asyncio.create_task(keep_listed(record, ending, listed_every_s))
    try:
        yield
    finally:
        ending.set()
        await listing
        try:
            async with connect.client(record.reach, AWAY_S) as redis:  # anew: the password may be another by now
                await runs.forget_outside(redis, record.name, record.run_id)
        except EsperError as error:  # the run has ended all the same, and a newer one takes the name over
            log.warning("run.not_taken_off", run=record.run_id, why=str(error))


async def keep_listed(record: runs.RunRecord, ending: asyncio.Event, every_s: float) -> None:
    """Ranks of torchrun's that begin anew ask for the run by its name, and wait until it is there."""
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), every_s)
        if ending.is_set():
            return
        try:
            async with connect.client(record.reach, AWAY_S) as redis:
                if await runs.announce_again(redis, record.name, record.run_id):
                    log.warning("run.listed_again", run=record.run_id, name=record.name)
        except EsperError as error:  # it is away: who needs it for more says so
            log.debug("run.not_listed", run=record.run_id, why=str(error))


async def wait_for_redis(redis: connect.Redis, run_id: str) -> None:
    """Until it answers; of one that takes more than a moment it is said who waits, and why."""
    try:
        await connect.wait_ready(redis, SOON_S)
    except LostError as error:
        log.warning("redis.awaited", run=run_id, why=str(error))
        await connect.wait_ready(redis)


def run_of_keyrings(folder: Path) -> str:
    """The run that the keyrings of a folder are for; all of them, and one for each role."""
    if not folder.is_dir():
        wanted = "a folder of a run's keyrings, from where one stands (esper keys derive --into makes it)"
        raise SettingError("keys", str(folder.absolute()), wanted)
    found = {keyring: RoleKeyring.load(folder / f"{keyring}.json") for keyring in KEYRINGS}
    run_ids = {keys.run_id for keys in found.values()}
    if len(run_ids) > 1:
        raise SettingError("keys", str(folder), f"keyrings of one run, not of {' and '.join(sorted(run_ids))}")
    for keyring, roles in KEYRINGS.items():
        if set(roles) - set(found[keyring].roles):
            wanted = f"a keyring for {' and '.join(roles)} (esper keys derive --into makes all of a run's)"
            raise SettingError("keys", str(folder / f"{keyring}.json"), wanted)
    return run_ids.pop()


def folder_of(read: RunFile, folder: Path) -> Path:
    """Of its Redis users' files, from wherever one stands; refused beside what would be in their way."""
    if read.redis == EMBEDDED or read.keys is None:
        wanted = "none without the URL of a Redis and keys: users of esper acl are those of one run on one server"
        raise SettingError("passwords", str(folder), wanted)
    if urlsplit(read.redis).username is not None or urlsplit(read.redis).password is not None:
        raise SettingError("redis", without_password(read.redis), "a URL that names no user, as passwords do")
    for role, kind in runfile.kinds(read).items():
        if taken := next((name for name in (USERNAME, PASSWORD, PASSWORD_FILE) if name in kind.environment), None):
            raise SettingError(f"{role}.environment.{taken}", "***", "none beside passwords, which say it")
    return folder.absolute()


def hold_keys(record: runs.RunRecord, folder: Path | None) -> None:
    """The keyrings of a folder, which are rotated there; else new ones, from a master that is forgotten at once."""
    master = MasterKeyring.new(time.time_ns())
    for keyring, roles in KEYRINGS.items():
        if folder is not None:
            record.keyring(keyring).symlink_to((folder / f"{keyring}.json").absolute())
        else:
            master.derive(record.run_id, roles).save(record.keyring(keyring))


async def open_groups(read: RunFile, record: runs.RunRecord) -> None:
    """Make every group before the first producer starts, so that none of what is written can be trimmed unread."""
    async with connect.writer(record.reach) as redis:
        await connect.wait_ready(redis)
        await connect.check_server(redis)
        for stream, group in groups(read, record.run_id):
            await Inbox(redis, redis, stream, group, group).open()


def groups(read: RunFile, run_id: str) -> list[tuple[str, str]]:
    """Stream and group, by the table of streams."""
    workers = [f"worker-{rank}" for rank in range(read.trainer.count)]
    return [
        (key, group)
        for stream in names.STREAMS
        for key in keys_of(stream, run_id, read.regions)
        for group in groups_of(stream, workers)
    ]


def keys_of(stream: names.Stream, run_id: str, regions: Sequence[str]) -> list[str]:
    """One, or one in each region."""
    if stream.regional:
        return [names.region_key(run_id, region, stream.name) for region in regions]
    return [names.key(run_id, stream.name)]


def groups_of(stream: names.Stream, workers: Sequence[str]) -> list[str]:
    """Empty where it is read without a group."""
    found = list[str]()
    for group in stream.group.split("; "):
        if group == "one per worker":
            found += workers
        elif not group.startswith("none"):
            found.append(group)
    return found
