"""The checkpoints of one rank in one folder: written, verified, listed, and let go when there are newer ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from esper.errors import CheckpointError, SettingError
from esper.tolaria.checkpoints import disk
from esper.tolaria.checkpoints.blob import check_blob
from esper.tolaria.checkpoints.manifest import EMERGENCY, Manifest
from esper.tolaria.checkpoints.signing import PURPOSE, Signature, Signer, Verifier

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

        Raises CheckpointError where none was made; those before it stay.
        """
        text = manifest.to_bytes()
        signature = signer.sign(PURPOSE + text, manifest.place.made_ns)
        disk.sweep(self.folder)
        kind = "emergency" if manifest.kind == EMERGENCY else "step"
        name = f"{kind}-{manifest.place.step:012d}-{manifest.place.made_ns & (2**64 - 1):016x}"
        files = {TENSORS: blob, MANIFEST: text, SIGNATURE: signature.to_bytes()}
        made = Checkpoint(disk.put_folder(self.folder, name, files), self.manifest(self.folder / name))
        if kind == "step":
            disk.put_file(self.folder / LATEST, name.encode())
        self._let_go(kind)
        return made

    def paths(self, kind: str = "step") -> list[Path]:
        """Folders that bear a checkpoint's name, those made last first; nothing is read.

        By time and not by step: who resumes from an older one makes new ones of lower steps than what did not verify.
        """
        found = [path for path in self.folder.glob(f"{kind}-*") if NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: path.name.rpartition("-")[2], reverse=True)

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
        """The newest that verifies whole. Raises CheckpointError, with every reason, where none does."""
        reasons = []
        for path in self.paths():
            try:
                manifest, blob = self.read(path)
                return Checkpoint(path, manifest), blob
            except CheckpointError as error:
                reasons.append(str(error))
        raise CheckpointError("; ".join(reasons) or "there is no checkpoint", str(self.folder))

    def _check_place(self, path: Path, manifest: Manifest) -> None:
        place = manifest.place
        if place.run_id != self._verifier.run_id:
            raise CheckpointError(f"it is of run {place.run_id!r}; expected {self._verifier.run_id!r}")
        kind = "emergency" if manifest.kind == EMERGENCY else "step"
        if path.name != f"{kind}-{place.step:012d}-{place.made_ns & (2**64 - 1):016x}":
            raise CheckpointError(f"its manifest is of {manifest.kind} step {place.step}, made at {place.made_ns} ns")

    def _let_go(self, kind: str) -> None:
        """Of those that verify, and of those that don't, the newest `keep` stay: junk displaces no good one."""
        found = list(self.verified(kind))
        good = [each.path for each in found if isinstance(each, Checkpoint)]
        bad = [Path(each.path) for each in found if isinstance(each, CheckpointError)]
        for path in (*good[self._keep :], *bad[self._keep :]):
            disk.drop_folder(path)


def _made_ns(path: Path) -> int:
    named = NAME.fullmatch(path.name)
    if named is None:
        raise CheckpointError("its folder does not bear a checkpoint's name")
    return int(named[3], 16)
