"""Fixtures of the store's tests."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.model.errors import MillstreamError
from millstream.store.message_store import MessageStore

_MEMORY = Path("/dev/shm")


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where the system has one, for tests that make and remove stores by the hundred."""
    if not _MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="millstream-test-", dir=_MEMORY) as directory:
        yield Path(directory)


@pytest.fixture(autouse=True)
def _stores_are_closed(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the stores that a test leaves open, on purpose or after a failure, while their directories are there."""
    still_open: list[MessageStore] = []
    open_store, close_store = MessageStore.open, MessageStore.close

    def open_and_note(*args: Any, **options: Any) -> MessageStore:
        store = open_store(*args, **options)
        still_open.append(store)
        return store

    def close_and_forget(store: MessageStore) -> None:
        still_open[:] = [other for other in still_open if other is not store]
        close_store(store)

    monkeypatch.setattr(MessageStore, "open", open_and_note)
    monkeypatch.setattr(MessageStore, "close", close_and_forget)
    yield
    for store in [*still_open]:
        # A store that failed, or whose files the test took away, says so once more.
        with contextlib.suppress(MillstreamError, OSError):
            store.close()
