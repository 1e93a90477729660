"""Asks and answers about a run that is kept going: lines of JSON over a unix socket that only its owner can open."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias

from esper.errors import EsperError
from esper.runtime.ending import end, meanwhile, raise_first

LONGEST_REQUEST_BYTES = 4096
LONGEST_ANSWER_BYTES = 1 << 20
REQUEST_S = 5.0
MOST_CALLERS = 16
LAST_WORDS_S = 1.0
NAME = "control"
HUNG_UP = "whoever keeps the run going hung up at {}"

Request: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[Request], AsyncGenerator[dict[str, Any], None]]


class ControlError(EsperError):
    """Who keeps the run going can't be asked, or refuses."""


@asynccontextmanager
async def answering(path: Path, answer: Answer) -> AsyncIterator[None]:
    """Answer callers while the block runs: the lines of `answer`, and then one that says how it went."""
    callers: set[asyncio.Task[None]] = set()

    def on_caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(callers) >= MOST_CALLERS:
            writer.close()
            return
        callers.add(task := asyncio.create_task(call(reader, writer, answer)))
        task.add_done_callback(callers.discard)

    server = await asyncio.start_unix_server(on_caller, path, limit=LONGEST_REQUEST_BYTES)
    path.chmod(0o600)  # the folder is closed to others as well
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)
        if callers:  # who asked for the end is told that it has come
            await asyncio.wait(callers, timeout=LAST_WORDS_S)
        await end(callers)


async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
    """One caller; what goes wrong with it is its own fault, and its loss. Hanging up, it ends what it has asked for."""
    try:
        async with asyncio.timeout(REQUEST_S):
            line = await reader.readuntil(b"\n")
        async with meanwhile(exchange(writer, line, answer), hung_up(reader)) as either:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            raise_first(either[:1])
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return
    finally:
        writer.close()


async def exchange(writer: asyncio.StreamWriter, line: bytes, answer: Answer) -> None:
    """One request, the lines of its answer, and how it went."""
    try:
        async with aclosing(answer(request_of(line))) as lines:
            async for each in lines:
                await write(writer, each)
        await write(writer, {"ok": True})
    except EsperError as error:
        await write(writer, {"ok": False, "error": str(error)})


async def hung_up(reader: asyncio.StreamReader) -> None:
    """Until the caller is gone; what it says further is left unheard."""
    with suppress(ConnectionError):
        while await reader.read(LONGEST_REQUEST_BYTES):
            pass


def request_of(line: bytes) -> Request:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ControlError(f"a request is {line[:80]!r}; expected one line of JSON") from error
    if not isinstance(request, dict):
        raise ControlError(f"a request is {request!r}; expected an object")
    return request


def answered(path: Path, line: bytes) -> dict[str, Any]:
    """One line of an answer; ControlError: it is torn, as by the end of whoever said it."""
    try:
        each: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise ControlError(f"{HUNG_UP.format(path)}, after {line[:80]!r}") from error
    return each


async def write(writer: asyncio.StreamWriter, each: dict[str, Any]) -> None:
    writer.write(json.dumps(each).encode() + b"\n")
    await writer.drain()


def ask(path: Path, request: Request, timeout_s: float | None = None) -> Iterator[dict[str, Any]]:
    """The lines of an answer, as they come; ControlError where it refuses, or hangs up before its last one."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(timeout_s)
        try:
            channel.connect(str(path))
            channel.sendall(json.dumps(request).encode() + b"\n")
            with channel.makefile("rb") as lines:
                while line := lines.readline(LONGEST_ANSWER_BYTES):
                    each = answered(path, line)
                    if "ok" in each:
                        if not each["ok"]:
                            raise ControlError(each["error"])
                        return
                    yield each
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ControlError(HUNG_UP.format(path)) from error
        except OSError as error:
            raise ControlError(f"nobody answers at {path}: {error.strerror or error}") from error
    raise ControlError(HUNG_UP.format(path))
