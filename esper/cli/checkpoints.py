"""`esper checkpoints`: what lies in a folder of checkpoints, and whether it is to be believed."""

from __future__ import annotations

import json as notation
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from esper.cli.options import RUNS, AsJson
from esper.errors import CheckpointError, EsperError, SettingError
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.terminal_text import moment, printable
from esper.runtime.history.checkpoint_keys import keyring_for
from esper.runtime.history.logbook import KEYRING, LOG
from esper.tolaria.checkpoints.keyed import KeyringSigner
from esper.tolaria.checkpoints.manifest import Manifest
from esper.tolaria.checkpoints.store import NAME, TENSORS, Store

app = typer.Typer(name="checkpoints", no_args_is_help=True, help="List and verify checkpoints.")

KEYRING_HELP = "A keyring of the run; default ESPER_KEYRING, the live run's, or that beside its log below ./runs."

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder given to attach(), or one below it.")]
Keyring = Annotated[Path | None, typer.Option(help=KEYRING_HELP)]
NONE_VERIFIES = 1


@dataclass(frozen=True, slots=True)
class Found:
    """One checkpoint: its manifest, or why it is not to be believed."""

    path: Path
    manifest: Manifest | None
    why: str
    undone: bool = False  # by a rollback: nothing goes back to it or resumes from it

    def row(self) -> dict[str, Any]:
        told: dict[str, Any] = {"path": str(self.path), "verifies": not self.why, "why": self.why}
        if self.manifest is None:
            return told
        place, marks = self.manifest.place, self.manifest.marks
        return told | {
            "kind": self.manifest.kind,
            "run": place.run_id,
            "rank": place.rank,
            "world_size": place.world_size,
            "step": place.step,
            "epoch": place.epoch,
            "roster_generation": place.roster_generation,
            "made_ns": place.made_ns,
            "reason": self.manifest.reason,
            "tensors": len(marks.tensors),
            "size_bytes": (self.path / TENSORS).stat().st_size,
            "positions": dict(self.manifest.log.positions),
            "undone": self.undone,
        }


@app.command("list")
def list_checkpoints(folder: Folder, keyring: Keyring = None, json: AsJson = False) -> None:
    """Show each, newest first, by its manifest alone: kind, step, time, rank, size; or why it does not verify."""
    if not (paths := _paths(folder)):
        typer.echo(f"no checkpoints in {printable(str(folder))}", err=True)
    for found in _found(paths, keyring, whole=False):
        _show(found, json)


@app.command()
def verify(folder: Folder, keyring: Keyring = None, json: AsJson = False) -> None:
    """Read every byte of each. Status 1 where one does not verify."""
    if not (paths := _paths(folder)):
        raise SettingError("folder", str(folder), "one with checkpoints in it")
    num_refused, every = 0, _found(paths, keyring, whole=True)
    try:
        for found in every:
            num_refused += bool(found.why)
            _show(found, json)
    except BrokenPipeError:  # nobody reads the rest, whose verdict is a part of the status all the same
        num_refused += sum(bool(found.why) for found in every)
    if num_refused:
        raise typer.Exit(NONE_VERIFIES)


def _paths(folder: Path) -> list[Path]:
    """Of the checkpoints in a folder and below it. SettingError where there is no such folder."""
    if not folder.is_dir():
        raise SettingError("folder", str(folder), "one with checkpoints in it")
    return [path for path in (folder, *folder.rglob("*")) if NAME.fullmatch(path.name) and path.is_dir()]


def _found(paths: list[Path], keyring: Path | None, *, whole: bool) -> Iterator[Found]:
    for path in sorted(paths, key=lambda path: (path.parent, path.name.rpartition("-")[2]), reverse=True):
        yield _looked_at(path, keyring, whole=whole)


def _looked_at(path: Path, keyring: Path | None, *, whole: bool) -> Found:
    manifest, undone = None, False
    try:
        store = Store(path.parent, KeyringSigner(_keys(path, keyring)))
        manifest = store.manifest(path)
        if whole:
            store.read(path)
        undone = path.name in store.undone().names
    except CheckpointError as error:
        return Found(path, manifest, error.why)
    return Found(path, manifest, "", undone)


def _keys(path: Path, given: Path | None) -> RoleKeyring:
    """Those given, or of the run that the folder is named after."""
    if given is not None:
        return RoleKeyring.load(given)
    run = path.parent.parent.name
    try:
        return keyring_for(run, os.environ)
    except EsperError as error:
        if (beside := RUNS / run / LOG / KEYRING).is_file():
            return RoleKeyring.load(beside)
        raise SettingError("--keyring", "", f"a keyring of the run that made {path} ({error})") from error


def _show(found: Found, as_json: bool) -> None:
    row = found.row()
    if as_json:
        typer.echo(notation.dumps(row))
        return
    if found.manifest is None:
        typer.echo(printable(f"{found.path}  refused: {found.why}"))
        return
    made = moment(row["made_ns"])
    place = f"{row['run']} rank {row['rank']} of {row['world_size']}"
    size = f"{row['tensors']} tensors, {row['size_bytes'] / 1e6:.1f} MB"
    state = f"refused: {found.why}" if found.why else row["reason"] or ("undone by a rollback" if found.undone else "")
    typer.echo(printable(f"{row['kind']:9} step {row['step']:<9} {made}  {place}  {size}  {state}".rstrip()))
