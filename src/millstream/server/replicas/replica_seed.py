"""What a replica gets of its master before it can follow: documents of the state, and a store that begins where the
master's log does.

Asked for by code 9122 where the master has let go of messages that the replica lacks, as a new replica of an old
broker. Compacted queues come as files, by code 9123.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from millstream.broker.data_directory import config_parts, document, set_aside
from millstream.model.errors import NameRefused, StoreError
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import RemotingCommand
from millstream.protocol.remoting.messages.replication import SeedFileRequest
from millstream.protocol.remoting.refusals import error_of
from millstream.replication.epoch_log import EpochLog, save_epochs
from millstream.store.compactor import COMPACTION
from millstream.store.files import FileLayer
from millstream.store.seed import StoreSeed, seed_store
from millstream.store.snapshot import Snapshot
from millstream.transport.remoting_client import RemotingConnection

__all__ = ["PART_BYTES", "ReplicaSeed", "fetch_seed", "make_seed", "plant_seed", "read_seed_file"]

PART_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a file in one answer at most."""

MAX_SEED_BYTES: Final = 15 * 1024 * 1024
"""Bytes of a seed at most: what one frame holds, with room for its header."""

_ANSWER_S: Final = 30.0
_MARK: Final = "config/state.json"


class ReplicaSeed(msgspec.Struct, frozen=True):
    """`documents` are those of the state, by their parts of the data directory; the state log goes on behind them."""

    store: StoreSeed
    epochs: list[tuple[int, int]]
    documents: dict[str, bytes]
    files: list[tuple[str, int]]
    """The files of compacted queues, by paths below the store's directory, and their sizes."""


def make_seed(directory: Path, log: EpochLog) -> bytes:
    """The seed of a master's directory, encoded. Raises REPLICA_TOO_FAR_BEHIND where no frame holds it, OSError."""
    # The mark before the documents: they may hold later changes than it says, never earlier ones.
    parts = [_MARK, *config_parts()]
    documents = {part: text for part in parts if (text := Snapshot(directory / part).load()) is not None}
    compacted = directory / "store" / COMPACTION
    files = [
        (str(path.relative_to(directory / "store")), path.stat().st_size)
        for path in sorted(compacted.rglob("*"))
        if path.is_file()
    ]
    seed = ReplicaSeed(log.store.make_seed(), [*log.epochs.starts], documents, files)
    encoded = msgspec.msgpack.encode(seed)
    if len(encoded) > MAX_SEED_BYTES:
        words = f"The state of this broker has {len(encoded)} bytes; a replica can be given {MAX_SEED_BYTES}."
        raise StoreError("REPLICA_TOO_FAR_BEHIND", words)
    return encoded


def read_seed_file(directory: Path, asked: SeedFileRequest) -> bytes:
    """A part of a file of a seed. Raises REPLICA_REFUSED for a path that no seed names, or that is gone."""
    root = (directory / "store" / COMPACTION).resolve()
    path = (directory / "store" / asked.path).resolve()
    if not path.is_relative_to(root) or not path.is_file():
        raise NameRefused(
            "REPLICA_REFUSED", f"No seed has the file {asked.path[:200]!r} now.", remedy="Ask for a new seed."
        )
    with path.open("rb") as opened:
        opened.seek(asked.offset)
        return opened.read(PART_BYTES)


async def fetch_seed(connection: RemotingConnection) -> tuple[ReplicaSeed, dict[str, bytes]]:
    """The seed of the master at the other end, and its files. Raises what it refuses, Unreachable, TimedOut."""
    answer = await _ask(connection, RemotingCommand(RequestCode.FETCH_SEED))
    try:
        seed = msgspec.msgpack.decode(answer.body, type=ReplicaSeed)
    except msgspec.DecodeError as error:
        raise StoreError("STORE_FORMAT", f"The seed of the master cannot be read: {error}.") from None
    files: dict[str, bytes] = {}
    for path, size_bytes in seed.files:
        content = b""
        while len(content) < size_bytes:
            ext = SeedFileRequest(path, len(content)).encode()
            part = (await _ask(connection, RemotingCommand(RequestCode.FETCH_SEED_FILE, ext))).body
            if not part:
                raise StoreError("STORE_FORMAT", f"The master's file {path} ends before {size_bytes} bytes.")
            content += part
        files[path] = content[:size_bytes]
    return seed, files


def plant_seed(directory: Path, seed: ReplicaSeed, files: dict[str, bytes], segment_bytes: int, suffix: str) -> Path:
    """Begin a directory again, which nobody has open; where what it had is kept. Raises OSError."""
    layer, aside, planting = FileLayer(), set_aside(directory, suffix), directory / "store.planting"
    layer.remove_tree(planting)
    for part, text in seed.documents.items():
        (Snapshot(directory / part) if part == _MARK else document(directory, part)).save(text)
    seed_store(planting, seed.store, segment_bytes)
    save_epochs(planting, seed.epochs)
    for name, content in files.items():
        layer.make_directory((planting / name).parent)
        layer.replace(planting / name, content)
    # A store that is there is a whole one: half of one would begin its queues at offsets that were given before.
    layer.rename(planting, directory / "store")
    layer.sync_directory(directory)
    return aside


async def _ask(connection: RemotingConnection, command: RemotingCommand) -> RemotingCommand:
    answer = await connection.request(command, _ANSWER_S)
    if answer.code != ResponseCode.SUCCESS:
        raise error_of(answer, f"{connection.address.host}:{connection.address.port}")
    return answer
