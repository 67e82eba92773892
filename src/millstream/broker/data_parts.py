"""What the data directory of a role must hold beside the parts of its store, and what goes with each part."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from millstream.model.errors import StartRefused, StoreError
from millstream.store.files import FileLayer, refusal_name
from millstream.store.integrity import Loss, check_no_loss, is_part_there, part_losses
from millstream.store.manifest import StoreManifest
from millstream.store.snapshot import Snapshot

__all__ = ["STORE", "check_directory", "directory_losses", "document", "note_directory"]

STORE: Final = "store"
"""The part of a broker's directory with the messages; it has a manifest of its own."""

_LOST: Final = {
    STORE: "all messages are gone, and all positions of consumers mean nothing",
    "config/topics.json": "no topic is known, and its messages cannot be read",
    "config/groups.json": "consumer groups lose their settings",
    "config/offsets.json": "consumer groups begin anew, and messages that they have consumed come again",
    "config/static-topics.json": "queues of static topics lose their places, and with them their messages",
    "config/permission.json": "a drained broker takes messages again",
    "config/redriven.json": "dead letters that were sent again are listed anew",
    "config/request_modes.json": "consumers of groups that pop pull again",
    "config/access.json": "all users and policies are gone",
    "config/nameserver.json": "the keys that tools keep in the nameserver, as the order of queues, are gone",
    "controller.json": "the controller knows no replica, no master and no sync state set",
    "nameserver.json": "the keys that tools keep in the nameserver, as the order of queues, are gone",
}
"""Each part, and what a start without it would cost."""


def document(directory: Path, part: str) -> Snapshot:
    """The document of a data directory, which the directory must hold from its first save on."""
    assert part in _LOST
    return Snapshot(directory / part, on_saved=StoreManifest(directory).noting(part))


def check_directory(directory: Path) -> None:
    """Refuse, before anything is changed, a directory that lacks what it had: DATA_MISSING.

    Raises STORE_FORMAT where a document cannot be read, neither its file nor its copy.
    """
    losses = directory_losses(directory)
    check_no_loss([loss for loss in losses if not loss.is_damaged])
    for loss in losses:
        raise StoreError("STORE_FORMAT", loss.words)


def directory_losses(directory: Path) -> list[Loss]:
    """What is missing of the directory's parts, or damaged in both copies."""
    files = FileLayer()
    noted = StoreManifest(directory, files).load()
    losses = [] if noted is None else part_losses(directory, noted.parts, files, lost=_LOST)
    for part in _LOST.keys() - {STORE}:
        path = directory / part
        if is_part_there(path, files):
            try:
                Snapshot(path, files).load()
            except StoreError as error:
                losses.append(Loss(directory, part, error.message, is_damaged=True))
    return losses


def note_directory(directory: Path, *folders: str) -> None:
    """Take what the directory holds, of these folders too, for what it must hold, after a whole start.

    Raises DISK_FULL, DATA_DIRECTORY_NOT_WRITABLE.
    """
    files = FileLayer()
    found = [part for part in (*_LOST, *folders) if is_part_there(directory / part, files)]
    try:
        if found:
            StoreManifest(directory, files).note(*found)
    except OSError as error:
        name = refusal_name(error, "DATA_DIRECTORY_NOT_WRITABLE")
        raise StartRefused(name, f"The data directory {directory} cannot be used: {error}.") from error
