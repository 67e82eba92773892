"""The hot modules that a wheel also holds in compiled form, and which form is in use, and why.

A hot module is a `.py` that runs as it is, with a `.pxd` of its types beside it. tools/build_compiled.py compiles it,
and Python prefers the extension module. With MILLSTREAM_PLAIN=1 the sources run all the same.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final

__all__ = [
    "HOT_MODULES",
    "PLAIN_VARIABLE",
    "HotPath",
    "SourceFinder",
    "look_at_hot_path",
    "prefer_sources",
    "wants_sources",
]

HOT_MODULES: Final = (
    "millstream.broker.pop.run_popper",
    "millstream.broker.queues.ledger",
    "millstream.broker.queues.pull_reader",
    "millstream.broker.remoting.ordinary_sends",
    "millstream.broker.remoting.pull_runs",
    "millstream.protocol.amqp.connection",
    "millstream.protocol.amqp.content_intake",
    "millstream.protocol.amqp.frames",
    "millstream.protocol.checksum",
    "millstream.protocol.grpc.framing",
    "millstream.protocol.grpc.plain_ack",
    "millstream.protocol.grpc.plain_send",
    "millstream.protocol.grpc.wire",
    "millstream.protocol.http2.allowance",
    "millstream.protocol.http2.connection",
    "millstream.protocol.http2.hpack",
    "millstream.protocol.http2.request_head",
    "millstream.protocol.http2.sending",
    "millstream.protocol.http2.stream",
    "millstream.protocol.message_run",
    "millstream.protocol.mqtt.decoding",
    "millstream.protocol.mqtt.frames",
    "millstream.protocol.record_encoder",
    "millstream.protocol.remoting.command",
    "millstream.protocol.remoting.frame",
    "millstream.protocol.remoting.messages.sends",
    "millstream.protocol.remoting.pull_shape",
    "millstream.protocol.remoting.request_shape",
    "millstream.protocol.remoting.send_shape",
    "millstream.protocol.remoting.shape_memory",
    "millstream.proxy.grpc.calls",
    "millstream.proxy.grpc.message_encoder",
    "millstream.proxy.grpc.plain_acks",
    "millstream.proxy.grpc.plain_caller",
    "millstream.proxy.grpc.plain_receives",
    "millstream.proxy.grpc.plain_sends",
    "millstream.store.index.key_index",
    "millstream.store.index.record_keys",
    "millstream.store.record_run",
    "millstream.store.write_batch",
    "millstream.tiered.queue_records",
    "millstream.transport.grpc.call",
    "millstream.transport.grpc.connection",
    "millstream.transport.grpc.deadlines",
)

PLAIN_VARIABLE: Final = "MILLSTREAM_PLAIN"
"""The environment variable that makes the sources run, if it is set and not 0."""

_REPORT: Final = Path(__file__).parent / "build.json"
"""What a wheel says of its own build; a work tree has none."""


class SourceFinder:
    """An entry of `sys.meta_path`: finds the hot modules' sources before Python looks for extension modules."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in HOT_MODULES:
            return None
        file = f"{name.rpartition('.')[2]}.py"
        for folder in path or ():
            source = Path(folder, file)
            if source.is_file():
                return importlib.util.spec_from_file_location(name, source)
        return None


@dataclass(frozen=True, slots=True)
class HotPath:
    """In which form the hot modules run in this process; `why` is empty where all are compiled."""

    compiled: int
    modules: int
    why: str = ""

    @property
    def is_compiled(self) -> bool:
        """Whether none of them runs from its source."""
        return self.compiled == self.modules


def wants_sources() -> bool:
    """Whether the environment asks for the plain form."""
    return os.environ.get(PLAIN_VARIABLE, "") not in ("", "0")


def prefer_sources() -> None:
    """Run the sources of all hot modules that are imported from now on."""
    if SourceFinder not in sys.meta_path:
        sys.meta_path.insert(0, SourceFinder)


def look_at_hot_path(report: Path = _REPORT) -> HotPath:
    """The form of the hot modules, imported or not. `report` is what a wheel says of its build."""
    compiled = sum(not origin.endswith(".py") for origin in _origins())
    if compiled == len(HOT_MODULES):
        return HotPath(compiled, compiled)
    return HotPath(compiled, len(HOT_MODULES), _why_plain(report))


def _origins() -> list[str]:
    return [spec.origin or "" for spec in map(importlib.util.find_spec, HOT_MODULES) if spec is not None]


def _why_plain(report: Path) -> str:
    if wants_sources():
        return f"{PLAIN_VARIABLE} is set"
    try:
        missing = json.loads(report.read_bytes())["missing"]
    except FileNotFoundError:
        return "it runs from its sources, not from a wheel"
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"what its wheel says of its build cannot be read: {error}"
    return f"as its wheel was built, {missing}" if missing else "its wheel was compiled for another Python"
