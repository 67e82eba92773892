"""Checks what a role's data directory must hold, and states how to go on without the parts that are lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from millstream.model.errors import StartRefused, StoreError
from millstream.store.damage.integrity import Loss, check_no_loss, is_part_there, part_losses
from millstream.store.deleted_topics import DELETED_TOPICS
from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer, refusal_name
from millstream.store.manifest import StoreManifest
from millstream.store.snapshot import Snapshot
from millstream.store.store_state import StoreState, accept_log_loss

__all__ = [
    "DAMAGED_SUFFIX",
    "STORE",
    "UNFINISHED_RESTORE",
    "accept_losses",
    "all_losses",
    "check_directory",
    "config_parts",
    "directory_losses",
    "document",
    "note_directory",
    "set_aside",
]


STORE: Final = "store"
"""The part of a broker's directory with the messages; it has a manifest of its own."""

UNFINISHED_RESTORE: Final = "restore.unfinished"
"""The file that is in a broker's directory while it is being restored."""

_LOST: Final = {
    STORE: "all messages are gone, and all positions of consumers mean nothing",
    "config/topics.json": "no topic is known, and its messages cannot be read",
    "config/groups.json": "consumer groups lose their settings",
    "config/offsets.json": "consumer groups begin anew, and messages that they have consumed come again",
    "config/static-topics.json": "queues of static topics lose their places, and with them their messages",
    "config/permission.json": "a drained broker takes messages again",
    "replica.json": "the replica takes a new id, and the controllers wait for the old one",
    "config/redriven.json": "dead letters that were sent again are listed anew",
    "config/request_modes.json": "consumers of groups that pop pull again",
    "config/cold.json": "messages that lie in the object store alone are not found",
    "config/cold_owner.json": "its own objects in the object store are taken for those of another broker",
    "config/columns.json": "copies of cold topics are made anew, beside the files that are there",
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

    Raises STORE_FORMAT where a document cannot be read, neither its file nor its copy, and RESTORE_UNFINISHED.
    """
    if FileLayer().exists(directory / UNFINISHED_RESTORE):
        raise StartRefused("RESTORE_UNFINISHED", f"The restore into {directory} did not end.")
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


def config_parts() -> list[str]:
    """The documents of a broker's state."""
    return [part for part in _LOST if part.startswith("config/") and part != "config/nameserver.json"]


def set_aside(directory: Path, suffix: str) -> Path:
    """Move the messages and the state of a directory away, whose log is of no use; where they are then.

    Nobody has it open. Raises OSError.
    """
    files, aside = FileLayer(), directory / f"aside-{suffix}"
    files.make_directory(aside)
    StoreManifest(directory, files).forget(part for part in _LOST if part == STORE or part.startswith("config/"))
    for name in ("config", STORE):
        if files.exists(directory / name):
            files.rename(directory / name, aside / name)
    files.sync_directory(directory)
    return aside


DAMAGED_SUFFIX: Final = ".damaged"
"""What a damaged file's name gets behind it when a directory goes on without it."""


def all_losses(directory: Path) -> list[Loss]:
    """What a data directory lacks of what it had, or has damaged beyond its copies. Raises DATA_DIRECTORY_NOT_WRITABLE
    where it cannot be read."""
    try:
        return list(_losses(directory))
    except OSError as error:
        words = f"The data directory {directory} cannot be read: {error}."
        raise StartRefused("DATA_DIRECTORY_NOT_WRITABLE", words) from error


def _losses(directory: Path) -> Iterator[Loss]:
    yield from directory_losses(directory)
    files, store = FileLayer(), directory / STORE
    if is_part_there(store, files):
        yield from StoreState.read(store, files).losses(files)
        try:
            Snapshot(store / DELETED_TOPICS, files).load()
        except StoreError as error:
            yield Loss(directory, f"{STORE}/{DELETED_TOPICS}", error.message, is_damaged=True)


def accept_losses(directory: Path, parts: Sequence[str]) -> list[Loss]:
    """Let the directory be whole without the parts, or all that are below them; what was accepted.

    Damaged files stay, under a name with `.damaged` behind it. Raises LOSS_UNKNOWN for a part that is not missing,
    DATA_DIRECTORY_IN_USE and DATA_DIRECTORY_NOT_WRITABLE.
    """
    try:
        with _hold_lock(directory):
            losses = all_losses(directory)
            accepted = []
            for part in parts:
                meant = [loss for loss in losses if _is_below(loss.part, part)]
                if not meant:
                    missing = ", ".join(loss.part for loss in losses) or "nothing"
                    words = f"{part!r} is not missing from {directory}; missing is {missing}."
                    raise StartRefused("LOSS_UNKNOWN", words)
                accepted += [loss for loss in meant if loss not in accepted]
            for loss in accepted:
                _accept(loss)
            return accepted
    except OSError as error:
        words = f"The data directory {directory} cannot be changed: {error}."
        raise StartRefused("DATA_DIRECTORY_NOT_WRITABLE", words) from error


def _is_below(part: str, named: str) -> bool:
    return Path(part).is_relative_to(Path(named))


def _accept(loss: Loss) -> None:
    files, store = FileLayer(), loss.directory / STORE
    is_of_store = loss.part.startswith(f"{STORE}/")
    manifest = StoreManifest(store if is_of_store else loss.directory, files)
    if loss.is_log:
        accept_log_loss(store, files)
        return
    manifest.forget([loss.part.removeprefix(f"{STORE}/") if is_of_store else loss.part])
    if loss.is_damaged:
        path = loss.directory / loss.part
        for damaged in (path, path.with_name(path.name + ".bak")):
            if files.exists(damaged):
                files.rename(damaged, damaged.with_name(damaged.name + DAMAGED_SUFFIX))
        files.sync_directory(path.parent)


@contextmanager
def _hold_lock(directory: Path) -> Iterator[None]:
    """No server runs on the directory meanwhile, whichever role it is of."""
    with ExitStack() as held:
        for place in (directory, directory / STORE):
            if (place / "lock").exists():
                held.callback(DirectoryLock(place, FileLayer()).release)
        yield
