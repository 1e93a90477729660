"""`esper keys`: make, list and rotate master keys, and derive the keyring of one process."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from esper.errors import SettingError
from esper.leyline.keyfile import read_private
from esper.leyline.keyring import LIFETIME_S, OVERLAP_S, SECOND_NS, MasterKeyring, RoleKeyring, Validity
from esper.leyline.kinds import Role

app = typer.Typer(name="keys", help="Make, list and rotate keys.", no_args_is_help=True)

Master = Annotated[Path, typer.Argument(help="The master keyring.", show_default=True)]
MASTER = Path("esper-master.json")


@app.command()
def new(master: Master = MASTER) -> None:
    """Make a master keyring with one fresh key. Keep it off the machines that train."""
    if master.exists():
        raise SettingError("keyring", str(master), "a file that is not there yet; `esper keys rotate` adds a key to it")
    keyring = MasterKeyring.new(time.time_ns())
    keyring.save(master)
    typer.echo(f"{master}: key {keyring.validities[0].key_id:08x}, valid for {LIFETIME_S // 86_400} days")


@app.command("list")
def list_keys(
    keyring: Annotated[Path, typer.Argument(help="A master or role keyring.")] = MASTER,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the ids of keys and when they are valid, never a key."""
    now_ns = time.time_ns()
    for validity in sorted(_validities(keyring), key=lambda one: one.not_before_ns):
        state = _state(validity, now_ns)
        if as_json:
            times = {"not_before_ns": validity.not_before_ns, "not_after_ns": validity.not_after_ns}
            typer.echo(json.dumps({"id": f"{validity.key_id:08x}", "state": state} | times))
        else:
            typer.echo(
                f"{validity.key_id:08x}  {state:8}  {_day(validity.not_before_ns)} to {_day(validity.not_after_ns)}"
            )


@app.command()
def rotate(
    master: Master = MASTER,
    lead_s: Annotated[int, typer.Option("--lead", min=0, help="Seconds until the new key takes over.")] = 3_600,
    overlap_s: Annotated[int, typer.Option("--overlap", min=0, help="Seconds that the old ones go on.")] = OVERLAP_S,
) -> None:
    """Add a key. Derive and hand out new role keyrings within the lead; nothing in flight is refused."""
    keyring = MasterKeyring.load(master).rotate(time.time_ns(), lead_s=lead_s, overlap_s=overlap_s)
    keyring.save(master)
    newest = keyring.validities[-1]
    typer.echo(f"{master}: key {newest.key_id:08x} seals from {_day(newest.not_before_ns)} on; derive anew")


@app.command()
def derive(
    run: Annotated[str, typer.Option(help="Id of the run that the keys are for, e.g. digits-0a1b2c3d.")],
    role: Annotated[list[Role], typer.Option(help="What the process is; may be given several times.")],
    out: Annotated[Path, typer.Option(help="Where the role keyring goes.")],
    master: Master = MASTER,
) -> None:
    """Write the keyring of one process: keys of one run and of its roles, no master secret."""
    if not run:
        raise SettingError("run", run, "the id of a run")
    MasterKeyring.load(master).derive(run, role).save(out)
    typer.echo(f"{out}: {', '.join(role)} of {run}; set ESPER_KEYRING={out}")


def _validities(path: Path) -> list[Validity]:
    kind = read_private(path, "master", "role")["esper_keyring"]
    return MasterKeyring.load(path).validities if kind == "master" else RoleKeyring.load(path).validities


def _state(validity: Validity, now_ns: int) -> str:
    if validity.holds_at(now_ns):
        return "valid"
    return "waiting" if now_ns < validity.not_before_ns else "retired"


def _day(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M UTC")
