"""The private message classes: built from the proto file, the same on the wire as the official client's."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.message import Message

from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS, SERVICE_NAME

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "src" / "millstream" / "protocol" / "grpc"
WAYS_OF_TYPES: dict[int, Any] = {
    FieldDescriptor.CPPTYPE_INT32: 7,
    FieldDescriptor.CPPTYPE_INT64: 1 << 40,
    FieldDescriptor.CPPTYPE_FLOAT: 0.5,
    FieldDescriptor.CPPTYPE_BOOL: True,
}


def fresh_build() -> dict[str, bytes]:
    build = runpy.run_path(str(ROOT / "tools" / "build_descriptors.py"))["build"]
    built: dict[str, bytes] = build()
    return built


def own_file(descriptors: bytes) -> bytes:
    files = FileDescriptorSet.FromString(descriptors).file
    return next(file for file in files if file.package == "apache.rocketmq.v2").SerializeToString(deterministic=True)


def official_classes() -> dict[str, type[Message]]:
    from rocketmq.grpc_protocol import definition_pb2, service_pb2

    found = {}
    for module in (definition_pb2, service_pb2):
        for name in module.DESCRIPTOR.message_types_by_name:
            found[name] = getattr(module, name)
    return found


def fill(message: Any, depth: int = 0) -> None:
    """Set every field to something other than its default."""
    for field in message.DESCRIPTOR.fields:
        if depth > 3:
            return
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["name"] = "value"
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            target = getattr(message, field.name)
            fill(target.add() if field.is_repeated else target, depth + 1)
        else:
            value = WAYS_OF_TYPES.get(field.cpp_type, b"\x00\xff" if field.type == FieldDescriptor.TYPE_BYTES else "té")
            if field.enum_type is not None:
                value = field.enum_type.values[-1].number
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)


def shape(descriptor: Descriptor) -> dict[str, tuple[Any, ...]]:
    return {
        field.name: (
            field.number,
            field.type,
            field.is_repeated,
            field.has_presence,
            field.containing_oneof.name if field.containing_oneof else "",
            field.message_type.full_name if field.message_type else "",
            field.enum_type.full_name if field.enum_type else "",
        )
        for field in descriptor.fields
    }


def test_the_kept_descriptors_are_those_of_the_proto_file() -> None:
    fresh, kept = fresh_build(), (FOLDER / "descriptors.bin").read_bytes()
    assert own_file(fresh["descriptors.bin"]) == own_file(kept)


def test_the_typed_facade_names_every_message_and_enum_value() -> None:
    facade = (FOLDER / "messages.pyi").read_text()
    described = FileDescriptorSet.FromString((FOLDER / "descriptors.bin").read_bytes()).file[-1]
    for message in described.message_type:
        assert f"\nclass {message.name}(" in facade
    for enum in described.enum_type:
        for value in enum.value:
            assert f"\n{value.name}: {enum.name}\n" in facade


def test_enum_values_stand_in_the_module_and_times_keep_their_methods() -> None:
    assert (m.OK, m.Code.Name(m.TOPIC_NOT_FOUND), m.OffsetOption.MAX) == (20000, "TOPIC_NOT_FOUND", 2)
    length = m.Duration()
    length.FromMilliseconds(1500)
    assert m.ReceiveMessageRequest(invisible_duration=length).invisible_duration.ToTimedelta().total_seconds() == 1.5


def test_the_service_has_its_seventeen_methods_with_their_streams() -> None:
    assert len(METHODS) == 17
    assert METHODS["SendMessage"].path == f"/{SERVICE_NAME}/SendMessage"
    streams = {name: (method.client_streams, method.server_streams) for name, method in METHODS.items()}
    assert {name: kinds for name, kinds in streams.items() if any(kinds)} == {
        "Telemetry": (True, True),
        "ReceiveMessage": (False, True),
        "PullMessage": (False, True),
    }
    assert METHODS["QueryRoute"].request is m.QueryRouteRequest
    assert METHODS["QueryRoute"].response is m.QueryRouteResponse


@pytest.mark.official
def test_every_official_message_has_the_same_fields_here() -> None:
    for name, official in official_classes().items():
        assert shape(getattr(m, name).DESCRIPTOR) == shape(official.DESCRIPTOR), name


@pytest.mark.official
def test_every_official_enum_has_the_same_values_here() -> None:
    from rocketmq.grpc_protocol import definition_pb2

    for name, official in definition_pb2.DESCRIPTOR.enum_types_by_name.items():
        ours = {value.name: value.number for value in getattr(m, name).DESCRIPTOR.values}
        assert ours == {value.name: value.number for value in official.values}, name


@pytest.mark.official
def test_bytes_are_read_the_same_in_both_directions() -> None:
    for name, official in official_classes().items():
        ours = getattr(m, name)()
        fill(ours)
        sent = ours.SerializeToString(deterministic=True)
        assert sent, name
        theirs = official.FromString(sent)
        assert str(theirs) == str(ours), name
        answered = theirs.SerializeToString(deterministic=True)
        assert getattr(m, name).FromString(answered) == ours, name
        assert answered == sent, name


@pytest.mark.official
@pytest.mark.parametrize(
    "order",
    [
        ("millstream.protocol.grpc.messages", "rocketmq.grpc_protocol"),
        ("rocketmq.grpc_protocol", "millstream.protocol.grpc.messages"),
    ],
    ids=["ours first", "the official one first"],
)
def test_one_process_holds_both_sets_of_classes(order: tuple[str, str]) -> None:
    program = f"""
import {order[0]}, {order[1]}
from millstream.protocol.grpc import messages as ours
from rocketmq.grpc_protocol import definition_pb2 as theirs
name = theirs.Resource(name="orders")
assert ours.Resource.FromString(name.SerializeToString()).name == "orders"
assert ours.Resource is not theirs.Resource
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
