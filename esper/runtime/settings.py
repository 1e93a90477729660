"""What a process is told from outside: ESPER_ variables, read once, each checked where it enters."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from esper.bus.durability import Wanted
from esper.bus.names import checked_name
from esper.errors import SettingError

EXIT_BAD_SETTING = 2
PREFIX = "ESPER_"

Name = Annotated[str, AfterValidator(lambda value: good_name(value))]
Port = Annotated[int, Field(ge=0, le=65_535)]


class Settings(BaseSettings):
    """Common to all processes; each process adds its own in a subclass."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    run: str = ""
    """Name or id of the run."""
    redis_url: str = ""
    """Empty: the embedded server of the run."""
    redis_username: str = ""
    """Redis's user of this process, as `esper acl` writes it down. What the URL says wins, here and below."""
    redis_password: str = Field(default="", repr=False)
    """The password of that user."""
    redis_password_file: Path | None = None
    """The file in which `esper acl` has written both, read anew at each connection; goes before the two above."""
    redis_ca: Path | None = None
    """PEM file of the authority that signed Redis's certificate, with rediss://; no other is trusted then."""
    redis_cert: Path | None = None
    """PEM file of this process's certificate, where Redis asks for one."""
    redis_key: Path | None = None
    """PEM file of its key, without a passphrase."""
    keyring: Path | None = None
    """Role keyring of this process, a file that only its owner can read."""
    name: Name = "esper"
    """Of this process, in what it seals, logs and tells."""
    region: Name = "local"
    """Region that tier 1 folds, or a trainer is of; a trainer without it takes its turn in ESPER_REGIONS, or r0."""
    durability: Wanted = "fast"
    """What a publish waits for. durable: until it is on disk or on all replicas; refused where Redis can't say so."""
    metrics_host: str = "127.0.0.1"
    """Address of the endpoint for /metrics, /healthz and /readyz."""
    metrics_port: Port = 0
    """Its port; 0: no endpoint."""
    log: Literal["console", "json"] = "console"
    """Lines on stderr: console for people, json for one object each."""


S = TypeVar("S", bound=Settings)


def good_name(value: str) -> str:
    """The name, if it may stand in a key and in a path."""
    try:
        return checked_name("name", value)
    except SettingError as error:
        raise ValueError(error.expected) from error


def load(settings: type[S]) -> S:
    """The settings of this process; or one line on stderr that names the first bad variable, and exit status 2."""
    try:
        return settings()
    except ValidationError as error:
        print(sentence(error.errors()[0]), file=sys.stderr)
        raise SystemExit(EXIT_BAD_SETTING) from None


def sentence(error: ErrorDetails) -> str:
    """The variable, the value met, and what was expected."""
    variable = PREFIX + "_".join(str(part) for part in error["loc"]).upper()
    if error["type"] == "missing":
        return f"{variable} is not set"
    expected = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    value = repr(error["input"])
    return f"{variable} is {value if len(value) <= 80 else value[:77] + '...'}; expected {expected}"
