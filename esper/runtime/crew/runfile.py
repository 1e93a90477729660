"""What a run consists of, as a file says it: `esper up -f run.toml`. Each value is checked where it enters."""

from __future__ import annotations

import resource
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from esper.bus.acl import USERS
from esper.bus.client.urls import unfit
from esper.bus.faults import without_password
from esper.errors import SettingError, near
from esper.leyline.kinds import Role
from esper.runtime.settings import Name

OURS = ("ESPER_RUN", "ESPER_REDIS_URL", "ESPER_KEYRING", "ESPER_NAME", "ESPER_REGION", "ESPER_REGIONS", "NOTIFY_SOCKET")
"""What is given to each process by itself, and by no file."""
EMBEDDED = "embedded"
ROLES = ("coordinator", "regional", "global", "trainer")
KEPT_NAMES = (*ROLES, "redis", "up")
"""What processes and logs of the run itself are called."""
TORCHRUN, TORCHRUN_MODULE = "torchrun", "torch.distributed.run"
TORCHRUN_ALONE = "1 where torchrun starts the ranks, as many as its --nproc-per-node says"
RLIMITS = {
    "memory_mb": (resource.RLIMIT_DATA, 1 << 20),
    "open_files": (resource.RLIMIT_NOFILE, 1),
    "core_mb": (resource.RLIMIT_CORE, 1 << 20),
    "cpu_s": (resource.RLIMIT_CPU, 1),
}
"""Key: the limit of the kernel, and how many of its units are one of ours."""

Seconds = Annotated[float, Field(ge=0.0, le=86_400.0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=1_000)]
Text = Annotated[str, AfterValidator(lambda given: free_of_nul(given))]
Words = Annotated[list[Text], Field(min_length=1)]
File = Annotated[Path, Field(strict=False), AfterValidator(lambda given: Path(free_of_nul(str(given))))]
Variable = Annotated[Text, AfterValidator(lambda given: name_of_variable(given))]
Environment = Annotated[dict[Variable, Text], AfterValidator(lambda given: free_of_ours(given))]
Mebibytes = Annotated[int, Field(ge=0, le=1 << 40)]


class Part(BaseModel):
    """A table of the file; what it does not know is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Restart(Part):
    """What becomes of a process that has died: started again after `first_s`, then twice as long, up to `longest_s`."""

    first_s: Seconds = 0.5
    longest_s: Seconds = 30.0
    limit: Count = 5
    """Starts within `window_s`, or in any time where it never was ready or trained, until it is given up; 0: none."""
    window_s: Seconds = 60.0


class Limits(Part):
    """What one process may take; absent: as much as who starts it."""

    nice: Annotated[int, Field(ge=0, le=19)] = 0
    memory_mb: Annotated[Mebibytes, Field(ge=16)] | None = None
    """Private writable memory (RLIMIT_DATA)."""
    open_files: Annotated[int, Field(ge=32, le=1 << 30)] | None = None
    core_mb: Mebibytes | None = None
    cpu_s: Annotated[int, Field(ge=1, le=1 << 40)] | None = None


class Logs(Part):
    """A log that has grown to `megabytes` is put aside; `kept` of those stay."""

    megabytes: Annotated[float, Field(gt=0.0, le=10_000.0, allow_inf_nan=False)] = 16.0
    kept: Annotated[int, Field(ge=1, le=100)] = 3


class Kind(Part):
    """What all roles have."""

    environment: Environment = {}
    restart: Restart = Restart()
    limits: Limits = Limits()
    stop_s: Seconds = 5.0
    """From SIGTERM to SIGKILL."""
    essential: bool = True
    """Whether the run ends where a process of this role is given up."""


class Server(Kind):
    """A coordinator or an aggregator. `count`: how many, of the regional tier in each region."""

    count: Annotated[int, Field(ge=0, le=100)] = 1


class Trainer(Kind):
    """Who trains: `count` processes, ranks of one group where they are `together`, else each a replica."""

    count: Count = 2
    command: Words = ["python", "-m", "esper.workers.trainer"]
    together: bool = True
    stop_by: Literal["file", "signal"] = "signal"
    """file: the one that ESPER_STOP_FILE names appears, `finish_s` before they are sent a SIGTERM."""
    finish_s: Seconds = 10.0

    @property
    def starts_ranks(self) -> bool:
        """Whether the command is a torchrun: one process, below which are ranks that it numbers by itself."""
        return TORCHRUN_MODULE in self.command or any(Path(word).name == TORCHRUN for word in self.command)


class Process(Kind):
    """Any further process, such as an exporter, with the keys of one role."""

    command: Words
    keys: Annotated[Role, Field(strict=False)] = Role.OBSERVER
    user: Annotated[str, AfterValidator(lambda given: redis_user(given))] = ""
    """Whose password it is given, where there are passwords; empty: that of who has these keys."""
    essential: bool = False


class RunFile(Part):
    """One run. Roles take of `restart`, `limits` and `environment` what they don't say by themselves."""

    name: Name
    regions: Annotated[list[Name], Field(min_length=1), AfterValidator(lambda given: all_different(given))] = ["r0"]
    redis: Annotated[str, AfterValidator(lambda given: embedded_or_url(given))] = EMBEDDED
    keys: File | None = None
    """Folder of role keyrings of one run (`esper keys derive`); absent: new ones, which end with the run."""
    passwords: File | None = None
    """Folder of the files of the run's Redis users (`esper acl`); absent: all processes are who starts them."""
    runs_dir: File = Path("runs")
    ready_s: Annotated[float, Field(gt=0.0, le=3_600.0)] = 60.0
    settle_s: Seconds = 10.0
    """How long what trainers have said may take through each tier, before that tier ends: longer than the five seconds
    after which an aggregator takes over what a dead one had in hand."""
    environment: Environment = {}
    restart: Restart = Restart()
    limits: Limits = Limits()
    logs: Logs = Logs()
    coordinator: Server = Server()
    regional: Server = Server()
    global_: Annotated[Server, Field(alias="global")] = Server()
    trainer: Trainer = Trainer()
    process: dict[Annotated[Name, AfterValidator(lambda given: name_of_process(given))], Process] = {}


def load(path: Path) -> RunFile:
    """Read and check it; SettingError names the file, the key, the value met, and what was expected."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("run file", str(path), f"a readable file ({error})") from error
    return parse(text, str(path))


def parse(text: str, where: str) -> RunFile:
    """The same, of a text. `where` is what errors call it."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also of numbers and arrays without end
        raise SettingError("run file", where, f"TOML ({error})") from error
    try:
        read = RunFile.model_validate(inherited(content))
    except ValidationError as error:
        raise refusal(where, error.errors()[0]) from error
    for role, kind in kinds(read).items():
        if fault := beyond(kind.limits):
            raise SettingError(f"{where}: {role}.limits.{fault[0]}", fault[1], fault[2])
    if read.trainer.count > 1 and read.trainer.starts_ranks:
        raise SettingError(f"{where}: trainer.count", read.trainer.count, TORCHRUN_ALONE)
    return read


def kinds(read: RunFile) -> dict[str, Kind]:
    """Every table of processes, by what the file calls it."""
    fixed: dict[str, Kind] = {"coordinator": read.coordinator, "regional": read.regional, "global": read.global_}
    extra = {f"process.{name}": process for name, process in read.process.items()}
    return {**fixed, "trainer": read.trainer, **extra}


def inherited(content: dict[str, Any]) -> dict[str, Any]:
    """With what stands above in each role that does not say it otherwise. What is no table is left to be refused."""
    common = {name: content.get(name, {}) for name in ("restart", "limits", "environment")}

    def with_common(role: object) -> object:
        if not isinstance(role, dict):
            return role
        merged = {
            name: {**above, **role[name]} if isinstance(above, dict) and isinstance(role[name], dict) else role[name]
            for name, above in common.items()
            if name in role
        }
        return {**common, **role, **merged}

    roles = {name: with_common(content.get(name, {})) for name in ROLES}
    extra = content.get("process", {})
    if isinstance(extra, dict):
        extra = {name: with_common(process) for name, process in extra.items()}
    return {**content, **roles, "process": extra}


def refusal(where: str, error: ErrorDetails) -> SettingError:
    """The first of the errors that were found, in our words."""
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return SettingError(f"{where}: {key}", None, "a value: it has no default")
    if error["type"] == "extra_forbidden":
        return SettingError(
            f"{where}: {key}", error["input"], f"a key that is known{near(str(error['loc'][-1]), KEYS)}"
        )
    expected = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    met = without_password(error["input"]) if key == "redis" and isinstance(error["input"], str) else error["input"]
    return SettingError(f"{where}: {key}", met, expected)


KEYS = sorted(
    {field.alias or name for part in Part.__subclasses__() for name, field in part.model_fields.items()}
    | {name for kind in Kind.__subclasses__() for name in kind.model_fields}
)


def beyond(limits: Limits) -> tuple[str, int, str] | None:
    """The first limit that is above what this process itself may have: its key, its value, what was expected."""
    for key, (number, unit) in RLIMITS.items():
        value, hard = getattr(limits, key), resource.getrlimit(number)[1]
        if value is not None and hard != resource.RLIM_INFINITY and value * unit > hard:
            return key, value, f"at most {hard // unit}, the hard limit of whoever starts it"
    return None


def all_different(given: list[str]) -> list[str]:
    if len(set(given)) < len(given):
        raise ValueError("names that are all different")
    return given


def redis_user(given: str) -> str:
    if given and given not in USERS:
        raise ValueError(f"one of {', '.join(USERS)}{near(given, USERS)}")
    return given


def embedded_or_url(given: str) -> str:
    if given != EMBEDDED and "://" not in given:
        raise ValueError(f"{EMBEDDED!r}, or a URL such as redis://localhost:6379/0")
    if given != EMBEDDED and (expected := unfit(given)):
        raise ValueError(expected)
    return given


def free_of_ours(given: dict[str, str]) -> dict[str, str]:
    taken = [name for name in given if name in OURS]
    if taken:
        raise ValueError(f"no {taken[0]}: each process is given its own")
    return given


def free_of_nul(given: str) -> str:
    if "\0" in given:
        raise ValueError("no NUL character: the kernel takes none")
    return given


def name_of_variable(given: str) -> str:
    if not given or "=" in given:
        raise ValueError("the name of a variable, without =")
    return given


def name_of_process(given: str) -> str:
    if given in KEPT_NAMES or given.startswith(tuple(f"{role}-" for role in ROLES)):
        raise ValueError("a name that no process of the run itself has")
    return given
