"""`esper keys`: make, list, rotate and retire master keys, and derive the keyring of one process."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from string import hexdigits
from typing import Annotated

import typer

from esper.bus.names import checked_run
from esper.cli.options import AsJson
from esper.errors import SettingError
from esper.leyline.keys.keyfile import read_private
from esper.leyline.keys.keyring import KEYRINGS, LIFETIME_S, OVERLAP_S, SECOND_NS, MasterKeyring, RoleKeyring, Validity
from esper.leyline.kinds import Role
from esper.leyline.terminal_text import moment
from esper.view.wording import counted

app = typer.Typer(name="keys", help="Make, list, rotate and retire keys.", no_args_is_help=True)

Master = Annotated[Path, typer.Argument(help="The master keyring.", show_default=True)]
Renew = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Also derive anew every role keyring in this folder, in time.")
]
MASTER = Path("esper-master.json")
SHORTEST_LEAD_S = 2


@app.command()
def new(master: Master = MASTER, as_json: AsJson = False) -> None:
    """Make a master keyring with one fresh key. Keep it off the machines that train."""
    if master.exists():
        raise SettingError("keyring", str(master), "a file that is not there yet; `esper keys rotate` adds a key to it")
    keyring = MasterKeyring.new(time.time_ns())
    keyring.save(master)
    if as_json:
        _show(keyring.validities[0], as_json)
        return
    typer.echo(f"{master}: key {keyring.validities[0].key_id:08x}, valid for {LIFETIME_S // 86_400} days")


@app.command("list")
def list_keys(
    keyring: Annotated[Path, typer.Argument(help="A master or role keyring.")] = MASTER, as_json: AsJson = False
) -> None:
    """Show the ids of keys and when they are valid, never a key."""
    for validity in sorted(_validities(keyring), key=lambda one: one.not_before_ns):
        _show(validity, as_json)


@app.command()
def rotate(
    master: Master = MASTER,
    lead_s: Annotated[
        int, typer.Option("--lead", min=0, max=LIFETIME_S, help="Seconds until the new key takes over.")
    ] = 3_600,
    overlap_s: Annotated[int, typer.Option("--overlap", min=0, help="Seconds that the old ones go on.")] = OVERLAP_S,
    force: Annotated[bool, typer.Option("--force", help="Also where processes may learn of the key too late.")] = False,
    renew: Renew = None,
    as_json: AsJson = False,
) -> None:
    """Add a key. Derive the role keyrings anew within the lead: processes read them again, nothing is refused."""
    if lead_s < SHORTEST_LEAD_S and not force:
        why = f"at least {SHORTEST_LEAD_S} seconds, as processes look at their keyring once a second; or --force"
        raise SettingError("--lead", str(lead_s), why)
    held = MasterKeyring.load(master)
    check_gap(held, time.time_ns(), lead_s, force)
    folder = role_keyrings(renew, held)
    keyring = held.rotate(time.time_ns(), lead_s=lead_s, overlap_s=overlap_s)
    keyring.save(master)
    renewed(folder, keyring)
    newest = keyring.validities[-1]
    if as_json:
        _show(newest, as_json)
        return
    typer.echo(
        f"{master}: key {newest.key_id:08x} seals from {moment(newest.not_before_ns)} on; {told(folder, master)}"
    )


@app.command()
def retire(
    key: Annotated[str, typer.Argument(metavar="KEY_ID", help="Eight hex digits, as `esper keys list` shows them.")],
    master: Master = MASTER,
    at: Annotated[str, typer.Option(help="ISO 8601, in UTC unless it says otherwise. Default: now.")] = "",
    now: Annotated[bool, typer.Option("--now", help="At once.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also the last key that is valid then.")] = False,
    renew: Renew = None,
    as_json: AsJson = False,
) -> None:
    """End a key. Derive the role keyrings anew: what carries the key in an entry made later is refused.

    Of a key that is retired already, --renew does what was left undone.
    """
    if at and now:
        raise SettingError("--at", at, "no --now beside it")
    key_id, at_ns = _key_id(key), _time_ns(at) if at else time.time_ns()
    held = MasterKeyring.load(master)
    folder = role_keyrings(renew, held)
    over = {each.key_id for each in held.validities if each.not_after_ns <= at_ns}
    if not (folder and key_id in over):  # else what was left undone is done now
        held = held.retire(key_id, at_ns, force=force)
        held.save(master)
    renewed(folder, held)
    [retired] = [validity for validity in held.validities if validity.key_id == key_id]
    if as_json:
        _show(retired, as_json)
        return
    typer.echo(f"{master}: key {key_id:08x} is retired from {moment(retired.not_after_ns)} on; {told(folder, master)}")


@app.command()
def derive(
    run: Annotated[str, typer.Option(help="Id of the run that the keys are for, e.g. digits-0a1b2c3d.")],
    role: Annotated[
        list[Role] | None, typer.Option(help="What the process is; may be given several times.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the role keyring goes.")] = None,
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Instead of both: every keyring of a run, a file each.")
    ] = None,
    master: Master = MASTER,
    as_json: AsJson = False,
) -> None:
    """Write the keyring of one process, or of all: keys of one run and of its roles, no master secret."""
    checked_run(run)
    keyring, wanted = MasterKeyring.load(master), asked(role or [], out, into)
    if taken := next((path for path in wanted if path.exists() and path.samefile(master)), None):
        why = "another file than the master keyring, which nothing could bring back"
        raise SettingError("--into" if into else "--out", str(taken), why)
    for path, roles in wanted.items():
        keyring.derive(run, roles).save(path)
        if as_json:
            typer.echo(json.dumps({"keyring": str(path), "run": run, "roles": [str(each) for each in roles]}))
        else:
            typer.echo(f"{path}: {', '.join(roles)} of {run}; set ESPER_KEYRING={path}")


def asked(roles: list[Role], out: Path | None, folder: Path | None) -> dict[Path, list[Role]]:
    """The roles of each file that is to be written; its folder is made."""
    if folder is not None:
        if roles or out is not None:
            raise SettingError("--into", str(folder), "no --role and no --out beside it")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SettingError(
                "--into", str(folder), f"a folder, or where one can be made ({error.strerror})"
            ) from None
        return {folder / f"{name}.json": held for name, held in KEYRINGS.items()}
    if not roles or out is None:
        missing = "--out" if roles else "--role"
        raise SettingError(missing, "", "beside --run for one keyring, or --into DIR for all of a run")
    return {out: roles}


def check_gap(master: MasterKeyring, now_ns: int, lead_s: int, force: bool) -> None:
    """Refuse a lead that ends after every key that there is: between the two nobody could seal anything."""
    left_s = (max(each.not_after_ns for each in master.validities) - now_ns) // SECOND_NS
    if 0 < left_s < lead_s and not force:
        raise SettingError("--lead", str(lead_s), f"at most the {left_s} seconds that a key is valid yet; or --force")


def role_keyrings(folder: Path | None, master: MasterKeyring) -> dict[Path, RoleKeyring]:
    """Those in the folder, all of them derived from this master keyring; else none is renewed."""
    if folder is None:
        return {}
    paths = [path for path in sorted(folder.glob("*.json")) if read_private(path)["esper_keyring"] == "role"]
    found = {path: RoleKeyring.load(path) for path in paths}
    known = {validity.key_id for validity in master.validities}
    for path, keyring in found.items():
        if not {validity.key_id for validity in keyring.validities} & known:
            raise SettingError("--renew", str(path), "role keyrings of this master keyring alone; it holds other keys")
    if not found:
        raise SettingError("--renew", str(folder), "a folder with role keyrings")
    return found


def renewed(folder: Mapping[Path, RoleKeyring], master: MasterKeyring) -> None:
    """Write each anew; whoever follows its file takes it up within a second."""
    for path, keyring in folder.items():
        master.derive(keyring.run_id, keyring.roles).save(path)


def told(folder: Mapping[Path, RoleKeyring], master: Path) -> str:
    """What is left to do."""
    if folder:
        return f"derived anew: {counted(len(folder), 'role keyring')}"
    return f"role keyrings know it once they are derived anew: esper keys derive {master} --run RUN --into DIR"


def _validities(path: Path) -> list[Validity]:
    kind = read_private(path, "master", "role")["esper_keyring"]
    return MasterKeyring.load(path).validities if kind == "master" else RoleKeyring.load(path).validities


def _show(validity: Validity, as_json: bool) -> None:
    state = _state(validity, time.time_ns())
    if as_json:
        times = {"not_before_ns": validity.not_before_ns, "not_after_ns": validity.not_after_ns}
        typer.echo(json.dumps({"id": f"{validity.key_id:08x}", "state": state} | times))
        return
    days = f"{_day(validity.not_before_ns)} to {_day(validity.not_after_ns)}"
    typer.echo(f"{validity.key_id:08x}  {state:8}  {days}")


def _state(validity: Validity, now_ns: int) -> str:
    if now_ns >= validity.not_after_ns or validity.not_before_ns >= validity.not_after_ns:
        return "retired"
    return "waiting" if now_ns < validity.not_before_ns else "valid"


def _key_id(text: str) -> int:
    if len(text) == 8 and all(digit in hexdigits for digit in text):
        return int(text, 16)
    raise SettingError("key", text, "eight hex digits, as `esper keys list` shows them")


def _time_ns(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise SettingError("--at", text, "a time such as 2026-11-21T18:00:00") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()) * SECOND_NS


def _day(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M UTC")
