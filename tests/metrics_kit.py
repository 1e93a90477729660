"""The real processes of a run inside the test, scraped as Prometheus does, and names read out of PromQL."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import structlog
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from esper.cli.running.ports import free_port
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.runtime import access
from esper.runtime.beside.heartbeat_repeater import HeartbeatRepeater
from esper.runtime.beside.trainer_figures import TrainerMetrics
from esper.runtime.operations.catalogue import MEASURED, METRICS
from esper.runtime.operations.upkeep import HealthEndpoint
from esper.runtime.process import Main
from esper.runtime.settings import Settings
from esper.workers import coordinator, exporter, global_, regional
from tests.scripted import ScriptedRun, cancelled, seed_state

TOLD: Mapping[str, tuple[Main, Role, dict[str, str]]] = {
    "coordinator": (coordinator.main, Role.COORDINATOR, {"ESPER_NAME": "coordinator"}),
    "regional": (regional.main, Role.REGIONAL, {"ESPER_NAME": "regional-r0", "ESPER_REGION": "r0"}),
    "global": (global_.main, Role.GLOBAL, {"ESPER_NAME": "global", "ESPER_REGIONS": "r0"}),
    "exporter": (exporter.main, Role.OBSERVER, {"ESPER_NAME": "exporter", "ESPER_EXPORT": "prometheus"}),
}
STANDARD = ("process_", "python_")
ASIDE = {"by", "without", "on", "ignoring", "group_left", "group_right"}
WORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"} | ASIDE


@asynccontextmanager
async def serving(
    role: str, run: ScriptedRun, folder: Path, patch: pytest.MonkeyPatch, until: str = ""
) -> AsyncIterator[int]:
    """The worker of a role, as its process runs it; its port. `until` is in what it shows once it has begun."""
    main, keys, told = TOLD[role]
    path, port, before = folder / f"{role}.json", free_port(), structlog.get_config()
    run.master.derive(run.run_id, [keys]).save(path)
    given = {"ESPER_RUN": run.run_id, "ESPER_REDIS_URL": run.url, "ESPER_KEYRING": str(path)}
    for name, value in {**given, **told, "ESPER_METRICS_PORT": str(port)}.items():
        patch.setenv(name, value)
    stopping = asyncio.Event()
    serving = asyncio.create_task(_until_stopped(main, stopping))
    try:
        await _up(port, serving, until)
        yield port
    finally:
        stopping.set()
        await asyncio.wait([serving], timeout=5.0)
        await cancelled(serving)
        structlog.configure(**before)
        structlog.contextvars.clear_contextvars()


async def _until_stopped(main: Main, stopping: asyncio.Event) -> None:
    await main(stopping)


async def _up(port: int, serving: asyncio.Task[None], until: str) -> None:
    async with asyncio.timeout(120):
        while True:
            with suppress(OSError):
                if until in (await got(port, "/metrics"))[1]:
                    return
            if serving.done():
                serving.result()
            await asyncio.sleep(0)


async def got(port: int, path: str) -> tuple[int, str]:
    """Status and body of the answer to a GET."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = (await reader.read()).decode()
    finally:
        writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


async def checks(port: int, path: str) -> tuple[int, dict[str, str]]:
    """Status, and each check with its own."""
    status, body = await got(port, path)
    content: dict[str, Any] = json.loads(body)
    return status, {check["check"]: check["status"] for check in content["checks"]}


async def trainers(run: ScriptedRun) -> list[Metric]:
    """What the runtime beside a trainer shows, once that has told of itself; its mailboxes are those of any reader."""
    found = await access.find(run.name)
    registry = HealthEndpoint("runtime", Settings(name="worker-0", region="r0"), found).registry
    repeater = HeartbeatRepeater()
    repeater.heard(
        pb.Heartbeat(
            version=1,
            worker="worker-0",
            step=7,
            loss=0.5,
            packets=3,
            seeds=[seed_state("s0", pb.SeedLifecycleStage.SEED_STAGE_TRAINING)],
        )
    )
    registry.register(TrainerMetrics(repeater))
    return families(generate_latest(registry).decode())


def families(text: str) -> list[Metric]:
    """As Prometheus's own parser reads them."""
    return list(text_string_to_metric_families(text))


def known(name: str) -> bool:
    """Whether a name that a rule or a panel asks for is one that some process shows."""
    rows = {row.name: row.kind for row in METRICS}
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    is_listed = (name in rows and rows[name] != "histogram") or (rows.get(base) == "histogram" and base != name)
    return is_listed or name == "up" or name.startswith((*STANDARD, *MEASURED))


def metric_names(expression: str) -> set[str]:
    """Names of the series in a PromQL expression: what is no word of the language, no function and no label."""
    bare = re.sub(r"\"[^\"]*\"|'[^']*'", "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(rf"\b({'|'.join(ASIDE)})\s*\([^)]*\)", " ", bare)
    found = re.findall(r"(?<![\w.$])([a-zA-Z_:][\w:]*)(?!\w)(?!\s*\()", bare)
    return {name for name in found if name.lower() not in WORDS}


def unknown(expressions: Iterable[str]) -> set[str]:
    """Names asked for that nobody shows."""
    return {name for each in expressions for name in metric_names(each) if not known(name)}
