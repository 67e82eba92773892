"""The log of one replica together with its epochs."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from crash.file_twins import FailingFiles
from replica_pair import OPTIONS

from millstream.model.errors import StoreError
from millstream.replication.epoch_list import EpochStart
from millstream.replication.epoch_log import EpochLog
from millstream.store.message_store import MessageStore


@pytest.mark.parametrize(("number", "name"), [(errno.ENOSPC, "DISK_FULL"), (errno.EIO, "STORE_FAILED")])
def test_an_epoch_that_the_disk_does_not_take_is_refused_by_name_and_not_noted(
    tmp_path: Path, number: int, name: str
) -> None:
    files = FailingFiles()
    store = MessageStore.open(tmp_path, OPTIONS)
    log = EpochLog(store, tmp_path, files)
    files.errors["pwrite"] = number
    with pytest.raises(StoreError) as refused:
        log.append(0, b"", EpochStart(1, 0))
    assert (refused.value.name, log.epochs.epoch) == (name, -1)
    store.close()
