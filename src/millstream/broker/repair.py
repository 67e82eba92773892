"""Going on without what a data directory has lost: the one way to start it again where nothing can be put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from millstream.broker.data_parts import STORE, directory_losses
from millstream.model.errors import StartRefused, StoreError
from millstream.store.deleted_topics import DELETED_TOPICS
from millstream.store.directory_lock import DirectoryLock
from millstream.store.files import FileLayer
from millstream.store.integrity import Loss, is_part_there
from millstream.store.manifest import StoreManifest
from millstream.store.snapshot import Snapshot
from millstream.store.store_state import StoreState, accept_log_loss

__all__ = ["DAMAGED_SUFFIX", "accept_losses", "all_losses"]

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
