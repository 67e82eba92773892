"""The message classes of apache.rocketmq.v2, built once from descriptors.bin in a private pool.

The pool is private because the official clients register the same full names in protobuf's default pool, and a second
registration there is an error at import. Types for editors and mypy stand in messages.pyi. A `Duration` or `Timestamp`
from the default pool is refused as a constructor argument here: take those of this module.
"""

from __future__ import annotations

from importlib.resources import files

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

POOL = DescriptorPool()


def _build() -> dict[str, object]:
    built: dict[str, object] = {}
    described = FileDescriptorSet.FromString(files(__package__).joinpath("descriptors.bin").read_bytes())
    for file in described.file:
        descriptor = POOL.AddSerializedFile(file.SerializeToString()) or POOL.FindFileByName(file.name)
        for name, message in descriptor.message_types_by_name.items():
            built[name] = GetMessageClass(message)
        for name, enum in descriptor.enum_types_by_name.items():
            built[name] = EnumTypeWrapper(enum)
            built.update((value.name, value.number) for value in enum.values)
    return built


globals().update(_build())
