"""What esper.attach() tells the runtime beside a trainer."""

from __future__ import annotations

from pydantic import Field

from esper.runtime import settings
from esper.runtime.beside import heartbeat_repeater
from esper.runtime.beside.packets import Format


class RuntimeSettings(settings.Settings):
    """What esper.attach() puts into the environment."""

    step_timeout_s: float = Field(heartbeat_repeater.STEP_TIMEOUT_S, ge=5.0)
    """A trainer that says nothing for so long hangs, though its process is at work."""
    link_control_fd: int
    link_rows_fd: int
    link_bell_fd: int
    link_alarm_fd: int
    link_trainer_pid: int
    link_launcher_pid: int = 0
    link_fresh: bool = False
    link_decided: str = ""
    """Entry of the newest decision when the trainer began, as its first runtime told it: Redis may forget that."""
    link_world_size: int = 1
    telemetry_format: Format = "frames"
    """columnar: tables of packed columns, for rows by the thousand a second; frames for rows that tell of an event."""
