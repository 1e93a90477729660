"""The checkpoints of one rank in one folder: written, verified, listed, and let go when there are newer ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from esper.errors import CheckpointError, SettingError
from esper.tolaria.checkpoints import disk
from esper.tolaria.checkpoints.blob import check_blob
from esper.tolaria.checkpoints.manifest import EMERGENCY, Manifest
from esper.tolaria.checkpoints.signing import PURPOSE, Signature, Signer, Verifier
from esper.tolaria.checkpoints.undone import FILE as UNDONE, MOST_BYTES as MOST_UNDONE_BYTES, Undone

TENSORS, MANIFEST, SIGNATURE, LATEST = "tensors.safetensors", "manifest.json", "manifest.sig", "latest"
NAME = re.compile(r"(step|emergency)-(\d{12})-([0-9a-f]{16})")
MOST_MANIFEST_BYTES = 2**28
MOST_TENSOR_BYTES = 2**40


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One whose manifest verified. Its tensors are read, and verified, by `Store.read`."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        return self.manifest.place.step


class Store:
    """Reads and writes checkpoints of one run. Knows nothing of torch, nor of what a state consists of.

    What it promises: a checkpoint is there whole or not at all, and one of which any byte differs from what a holder
    of the run's key has signed is refused. Not promised: that nobody has taken the newest one away.
    """

    def __init__(self, folder: Path, verifier: Verifier, keep: int = 3) -> None:
        if keep < 1:
            raise SettingError("checkpoints kept", keep, "at least 1")
        self.folder, self._verifier, self._keep = folder, verifier, keep

    def save(self, manifest: Manifest, blob: bytes, signer: Signer) -> Checkpoint:
        """Write, verify what the manifest says, move `latest`, and let go of the oldest beyond `keep`.

        It is made later than those that are here, whatever a clock says that has been set back since: which are the
        newest is told by that. Raises CheckpointError where none was made; those before it stay.
        """
        manifest = self._behind_all(manifest)
        text = manifest.to_bytes()
        signature = signer.sign(PURPOSE + text, manifest.place.made_ns)
        disk.sweep(self.folder)
        kind = _kind_of(manifest)
        name = f"{kind}-{manifest.place.step:012d}-{manifest.place.made_ns & (2**64 - 1):016x}"
        files = {TENSORS: blob, MANIFEST: text, SIGNATURE: signature.to_bytes()}
        before, path = self._latest(), disk.put_folder(self.folder, name, files)
        try:
            made = Checkpoint(path, self.manifest(path))
            if kind == "step":
                disk.put_file(self.folder / LATEST, name.encode())
        except CheckpointError:
            disk.drop_folder(path)  # told as none, it must not be the newest one that somebody resumes from
            if before:
                with suppress(CheckpointError):
                    disk.put_file(self.folder / LATEST, before)
            raise
        self._let_go(kind)
        return made

    def paths(self, kind: str = "step") -> list[Path]:
        """Folders that bear a checkpoint's name, those made last first; nothing is read.

        By time and not by step: who resumes from an older one makes new ones of lower steps than what did not verify.
        """
        found = [path for path in self.folder.glob(f"{kind}-*") if NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: path.name.rpartition("-")[2], reverse=True)

    def beside(self) -> list[Path]:
        """Those of other ranks, in folders beside this one; nothing is read."""
        found = sorted(self.folder.parent.glob("rank-*/step-*"))
        return [path for path in found if NAME.fullmatch(path.name) and path.parent.name != self.folder.name]

    def standing(self) -> list[Path]:
        """Those that no rollback has undone. Raises CheckpointError where the record of that does not verify."""
        names = self.undone().names
        return [path for path in self.paths() if path.name not in names]

    def undone(self) -> Undone:
        """What rollbacks have undone so far. Raises CheckpointError where the record of that does not verify."""
        path = self.folder / UNDONE
        try:
            return (
                Undone.from_bytes(disk.read_file(path, MOST_UNDONE_BYTES), self._verifier)
                if _is_there(path)
                else Undone()
            )
        except CheckpointError as error:
            raise error.at(path) from error

    def undo(self, to_step: int, made_ns: int, signer: Signer) -> None:
        """From now on those of later steps count for nothing: durable when this returns.

        By name and not by time, so that no clock that is put back undoes what comes after. Raises CheckpointError
        where that can't be written; then they are taken out of sight instead, as far as that goes.
        """
        later = [path for path in self.paths() if step_of(path) > to_step]
        try:
            there, known = frozenset(path.name for path in self.paths()), self.undone().names
            content = Undone((there & known) | {path.name for path in later}).to_bytes(signer, made_ns)
            self.folder.mkdir(parents=True, exist_ok=True)
            disk.put_file(self.folder / UNDONE, content)
        except (CheckpointError, OSError) as error:
            for path in later:
                disk.drop_folder(path)
            raise CheckpointError(f"what was undone can't be recorded: {error}", str(self.folder)) from error

    def manifest(self, path: Path) -> Manifest:
        """Raises CheckpointError unless it is signed, for this run, and of a known version."""
        try:
            signature = Signature.from_bytes(disk.read_file(path / SIGNATURE, 1024))
            text = disk.read_file(path / MANIFEST, MOST_MANIFEST_BYTES)
            self._verifier.check(signature, PURPOSE + text, _made_ns(path))
            manifest = Manifest.from_bytes(text)
            self._check_place(path, manifest)
        except CheckpointError as error:
            raise error.at(path) from error
        return manifest

    def read(self, path: Path) -> tuple[Manifest, bytes]:
        """The manifest and the bytes of its tensors, every one of them verified."""
        manifest = self.manifest(path)
        try:
            blob = disk.read_file(path / TENSORS, MOST_TENSOR_BYTES)
            check_blob(blob, manifest.marks)
        except CheckpointError as error:
            raise error.at(path) from error
        return manifest, blob

    def verified(self, kind: str = "step") -> Iterator[Checkpoint | CheckpointError]:
        """Each one by its manifest, newest first; why, for one that does not verify."""
        for path in self.paths(kind):
            try:
                yield Checkpoint(path, self.manifest(path))
            except CheckpointError as error:
                yield error

    def newest(self) -> tuple[Checkpoint, bytes]:
        """The newest that stands and verifies whole. Raises CheckpointError, with every reason, where none does."""
        reasons = []
        for path in self.standing():
            try:
                manifest, blob = self.read(path)
                return Checkpoint(path, manifest), blob
            except CheckpointError as error:
                reasons.append(str(error))
        raise CheckpointError("; ".join(reasons) or "there is no checkpoint", str(self.folder))

    def _behind_all(self, manifest: Manifest) -> Manifest:
        kind, place = _kind_of(manifest), manifest.place
        if all(_made_ns(path) < place.made_ns for path in self.paths(kind)):
            return manifest
        known = [each.manifest.place.made_ns for each in self.verified(kind) if isinstance(each, Checkpoint)]
        return replace(manifest, place=replace(place, made_ns=max([place.made_ns, *(made + 1 for made in known)])))

    def _check_place(self, path: Path, manifest: Manifest) -> None:
        place = manifest.place
        if place.run_id != self._verifier.run_id:
            raise CheckpointError(f"it is of run {place.run_id!r}; expected {self._verifier.run_id!r}")
        kind = _kind_of(manifest)
        if path.name != f"{kind}-{place.step:012d}-{place.made_ns & (2**64 - 1):016x}":
            raise CheckpointError(f"its manifest is of {manifest.kind} step {place.step}, made at {place.made_ns} ns")

    def _latest(self) -> bytes:
        path = self.folder / LATEST
        return disk.read_file(path, 1024) if path.is_file() else b""

    def _let_go(self, kind: str) -> None:
        """Of those that count, and of those that don't, the newest `keep` stay: junk displaces no good one."""
        undone = self._known_undone()
        good: list[Path] = []
        bad: list[Path] = []
        for each in self.verified(kind):
            path = Path(each.path)
            (good if isinstance(each, Checkpoint) and path.name not in undone else bad).append(path)
        for path in (*good[self._keep :], *bad[self._keep :]):
            disk.drop_folder(path)

    def _known_undone(self) -> frozenset[str]:
        """A record that does not verify is for whoever resumes to refuse; a new checkpoint is made all the same."""
        try:
            return self.undone().names
        except CheckpointError:
            return frozenset()


def _kind_of(manifest: Manifest) -> str:
    return "emergency" if manifest.kind == EMERGENCY else "step"


def step_of(path: Path) -> int:
    """The step that a checkpoint's folder is named after."""
    named = NAME.fullmatch(path.name)
    return 0 if named is None else int(named[2])


def _is_there(path: Path) -> bool:
    """Whatever it is, also a link to nowhere."""
    return path.is_symlink() or path.exists()


def _made_ns(path: Path) -> int:
    named = NAME.fullmatch(path.name)
    if named is None:
        raise CheckpointError("its folder does not bear a checkpoint's name")
    return int(named[3], 16)
