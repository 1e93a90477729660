"""The committed code of the wire is what its definitions give."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from esper.leyline import contracts

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "esper/leyline/v1"
UNSENT = "Nothing sends it"
PROTOS = sorted((ROOT / "proto" / PACKAGE).glob("*.proto"))


def compile_protos(*outputs: str) -> None:
    includes = [f"-I{ROOT / 'proto'}", f"-I{files('grpc_tools') / '_proto'}"]
    command = [sys.executable, "-m", "grpc_tools.protoc", *includes, *outputs, *map(str, PROTOS)]
    subprocess.run(command, check=True, timeout=150)


def generated(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / PACKAGE).glob("*_pb2.py*"))}


def defined_in_proto(folder: Path) -> set[str]:
    """Names of every message and enumeration, read by the compiler and not from our generated code."""
    compile_protos(f"--descriptor_set_out={folder / 'all'}")
    described = FileDescriptorSet.FromString((folder / "all").read_bytes())
    messages = {message.name for file in described.file for message in file.message_type}
    return messages | {enumeration.name for file in described.file for enumeration in file.enum_type}


def test_the_committed_code_is_what_make_proto_writes(tmp_path: Path) -> None:
    compile_protos(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}")

    assert generated(ROOT) == generated(tmp_path), "run `make proto` and commit what it writes"


def test_no_protobuf_is_asked_for_that_refuses_the_committed_code() -> None:
    code = "\n".join(path.read_text() for path in sorted((ROOT / PACKAGE).glob("*_pb2.py")))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    asked = {wanted for wanted in project["dependencies"] if wanted.startswith("protobuf")}

    assert asked == {f"protobuf>={version}" for version in re.findall(r"^# Protobuf Python Version: (.+)$", code, re.M)}


def test_contracts_names_every_message_and_enumeration(tmp_path: Path) -> None:
    defined = defined_in_proto(tmp_path)

    offered = {name for name in vars(contracts) if not name.startswith("_") and name != "annotations"}

    assert offered == defined


def test_every_message_that_reaches_redis_begins_with_the_version() -> None:
    sealed = ["AdaptationCommand", "OptimizerCommand", "CommandReceipt", "BarrierProposal", "BarrierVote", "Heartbeat"]
    sealed += ["BarrierCommit", "BarrierAbort", "TelemetryFrame", "AggregatedTelemetry", "EmergencySignal"]

    versions = {name: getattr(contracts, name).DESCRIPTOR.fields_by_number[1].name for name in sealed}

    assert versions == dict.fromkeys(sealed, "version")


def test_no_file_of_the_wire_defines_an_enumeration_but_enums_proto() -> None:
    homes: set[FileDescriptor] = {
        kind.DESCRIPTOR.file for kind in vars(contracts).values() if hasattr(kind, "DESCRIPTOR")
    }

    defining = {home.name for home in homes if home.enum_types_by_name}

    assert defining == {f"{PACKAGE}/enums.proto"}


def words_of_the_code() -> set[str]:
    """Every name that stands in what runs, aside from generated code and the list of the wire's names."""
    paths = [path for folder in ("esper", "workers", "examples") for path in (ROOT / folder).rglob("*.py")]
    told = "\n".join(path.read_text() for path in paths if path.parent.name != "v1" and path.name != "contracts.py")
    return set(re.findall(r"\w+", told))


def unsaid(part: str, words: set[str]) -> list[str]:
    """Of one message or enumeration: names that the code has not, and of which the page does not say so."""
    title, _, rest = part.partition("\n")
    if rest.startswith(f"\n{UNSENT}"):
        return []
    rows = {name: line for line in rest.splitlines() for name in re.findall(r"^\| [1-9]\d* \| `(\w+)`", line)}
    return [f"{title}: {name}" for name, line in {title: "", **rows}.items() if not (name in words or UNSENT in line)]


def test_where_nothing_sends_a_message_a_field_or_a_reason_the_protocol_says_so() -> None:
    words = words_of_the_code()
    parts = (ROOT / "docs/protocol.md").read_text().split("\n### ")[1:]
    ours = [part for part in parts if "| value |" not in part or part.startswith("ReasonCode\n")]

    assert [name for part in ours for name in unsaid(part, words)] == []
