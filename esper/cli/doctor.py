"""`esper doctor`: whether this machine and a Redis are fit for a run, and what to do where they are not."""

from __future__ import annotations

import asyncio
import json as notation
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer

from esper.bus import connect
from esper.bus.client.credentials import completed
from esper.bus.embedded import EmbeddedRedis
from esper.bus.upkeep.survey import survey
from esper.cli.options import AsObject, SameRun, either
from esper.cli.output.verdict import ending_with
from esper.cli.output.width import fitting
from esper.doctor.first_message import first_message
from esper.doctor.machine import machine_facts
from esper.doctor.machine_checks import machine_findings
from esper.doctor.rights import is_refusal, rights_of
from esper.doctor.run_checks import rights_finding, role_of, stream_findings, unseen
from esper.doctor.server import server_facts
from esper.doctor.server_checks import arrival, server_findings, shut_out, unreachable
from esper.doctor.users import DEFAULT, is_shut_out, whoami
from esper.errors import BusError, SettingError
from esper.leyline.terminal_text import printable
from esper.runtime import access
from esper.runtime.access import Access
from esper.runtime.operations.findings import Finding, worst
from esper.runtime.operations.health import keyring

UNFIT = 1


def doctor(
    named: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Also look at this live run: its keys, its streams.")
    ] = None,
    run: SameRun = None,
    redis: Annotated[
        str | None, typer.Option(metavar="URL", help="The Redis to look at; else ESPER_REDIS_URL, or an embedded one.")
    ] = None,
    json: AsObject = False,
) -> None:
    """Check this machine and a Redis, and say what to do. A message is published and read on a stream of its own."""
    findings = machine_findings(machine_facts()) + asyncio.run(_redis_and_run(redis, either(named, run)))
    status = worst(findings)
    with ending_with(UNFIT if status == "fail" else 0):
        if json:
            print(notation.dumps({"status": status, "checks": [finding.row() for finding in findings]}))
        else:
            for finding in findings:
                print(fitting(line(finding)))
            counts = {each: sum(finding.status == each for finding in findings) for each in ("ok", "warn", "fail")}
            print(", ".join(f"{number} {each}" for each, number in counts.items()))


def line(finding: Finding) -> str:
    """One line, and below it what to do."""
    met = f"{finding.status:4}  {finding.check:16}  {finding.met}"
    lines = [met if finding.status == "ok" else f"{met}; expected {finding.expected}"]
    if finding.status != "ok" and finding.todo:
        lines.append(f"      -> {finding.todo}")
    return "\n".join(map(printable, lines))  # much of it is what a server says of itself


async def _redis_and_run(url: str | None, run: str | None) -> list[Finding]:
    if run is not None:
        if url is not None:
            raise SettingError("--redis", url, "none beside --run, which knows its Redis (else ESPER_REDIS_URL)")
        found = await access.find(run)
        keys = keyring(found.keyring.validities, time.time_ns())
        return [*await _redis(found.redis_url), keys, *await _run(found)]
    async with _server(url or os.environ.get("ESPER_REDIS_URL") or "") as at:
        return await _redis(at)


@asynccontextmanager
async def _server(url: str) -> AsyncIterator[str]:
    """The server of this URL; of none: one that is started for the moment, as runs without a URL start theirs."""
    if url:
        yield completed(url, os.environ)
        return
    with tempfile.TemporaryDirectory(prefix="esper-doctor-") as folder, EmbeddedRedis(Path(folder)) as server:
        yield server.url


async def _redis(url: str) -> list[Finding]:
    async with connect.reader(url) as reader, connect.writer(url) as writer:
        try:
            await connect.wait_ready(writer, patience_s=0.0)
            facts = [await server_facts(server) for server in await writer.servers()]
            return [found for one in facts for found in server_findings(one)] + [
                arrival(await first_message(reader, writer))
            ]
        except BusError as error:
            return [(shut_out if is_shut_out(error) else unreachable)(str(error))]


async def _run(found: Access) -> list[Finding]:
    """Of a user who may not look at streams, what it may do is told all the same."""
    findings: list[Finding] = []
    try:
        async with connect.writer(found.redis_url) as redis:
            user = await whoami(redis) or DEFAULT
            role = role_of(found.run_id, user, found.keyring.roles)
            if user != DEFAULT and role is not None:
                findings.append(rights_finding(role, await rights_of(redis, found.run_id, user)))
            return [*findings, *stream_findings(await survey(redis, found.run_id))]
    except BusError as error:
        return [*findings, unseen() if is_refusal(error) else unreachable(str(error))]
