"""docs/protocol.md: every message with the comments of its definition, as the compiler reads them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from scripts.reference.tables import code, table

PROTO = Path(__file__).resolve().parent.parent.parent / "proto"
FOLDER = "esper/leyline/v1"
MESSAGE, ENUM, FIELD, VALUE = 4, 5, 2, 2
"""Numbers of those parts in the path of a comment, by descriptor.proto."""
HEAD = """# Protocol

Made from `proto/` by `make docs`. What a body may hold: version 1, proto3; ranges are in `esper/leyline/validate/`, and
what is outside them is refused. The envelope around it, keys and order of checks: [Keys and seals](security.md).
Which stream carries what: [Bus](internals/bus.md#streams).

"""
Comments = Mapping[tuple[int, ...], str]


def page() -> str:
    """The whole page, a part a file."""
    return HEAD + "".join(part(file) for file in described().file if file.name.startswith(FOLDER))


def described() -> FileDescriptorSet:
    """What the compiler says of our files, comments included."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "all"
        includes = [f"-I{PROTO}", f"-I{files('grpc_tools') / '_proto'}"]
        names = sorted(str(path) for path in (PROTO / FOLDER).glob("*.proto"))
        command = [sys.executable, "-m", "grpc_tools.protoc", *includes, "--include_source_info"]
        subprocess.run([*command, f"--descriptor_set_out={out}", *names], check=True, timeout=60)
        return FileDescriptorSet.FromString(out.read_bytes())


def part(file: FileDescriptorProto) -> str:
    """One file: its messages and enumerations, in their order."""
    said: dict[tuple[int, ...], str] = {}
    for place in file.source_code_info.location:
        text = place.leading_comments or place.trailing_comments
        if text.strip():
            said[tuple(place.path)] = " ".join(text.split())
    head = " ".join(file_comment(file.name).split())
    messages = [message(one, said, (MESSAGE, at)) for at, one in enumerate(file.message_type)]
    enums = [enumeration(one, said, (ENUM, at)) for at, one in enumerate(file.enum_type)]
    return f"## {Path(file.name).name}\n\n{head}\n\n" + "".join(messages + enums)


def file_comment(name: str) -> str:
    """The lines above `syntax`."""
    lines = (PROTO / name).read_text().splitlines()
    return " ".join(line.removeprefix("//") for line in lines[: lines.index('syntax = "proto3";')])


def message(one: DescriptorProto, said: Comments, path: tuple[int, ...]) -> str:
    """One message; those that stand within another have no page of their own here."""
    rows = [
        (str(field.number), code(field.name), kind(field, one), said.get((*path, FIELD, at), ""))
        for at, field in enumerate(one.field)
    ]
    return f"### {one.name}\n\n{paragraph(said.get(path, ''))}" + table(("", "field", "type", ""), rows)


def enumeration(one: EnumDescriptorProto, said: Comments, path: tuple[int, ...]) -> str:
    """One enumeration."""
    rows = [
        (str(value.number), code(value.name), said.get((*path, VALUE, at), "")) for at, value in enumerate(one.value)
    ]
    return f"### {one.name}\n\n{paragraph(said.get(path, ''))}" + table(("", "value", ""), rows)


def paragraph(text: str) -> str:
    return f"{text}\n\n" if text else ""


def kind(field: FieldDescriptorProto, owner: DescriptorProto) -> str:
    """Type as in the definition; of a map its key and value."""
    entry = next((one for one in owner.nested_type if field.type_name.endswith(f".{owner.name}.{one.name}")), None)
    if entry is not None and entry.options.map_entry:
        return f"map of {plain(entry.field[0])} to {plain(entry.field[1])}"
    repeated = "repeated " if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
    choice = f", one of `{owner.oneof_decl[field.oneof_index].name}`" if in_oneof(field) else ""
    return f"{repeated}{plain(field)}{choice}"


def in_oneof(field: FieldDescriptorProto) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def plain(field: FieldDescriptorProto) -> str:
    name = field.type_name.rpartition(".")[2]
    return (
        f"[{name}](#{name.lower()})"
        if name
        else FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    )
