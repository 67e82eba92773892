"""A data directory of a later release is refused and left as it is."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest
from crash.file_twins import HastyFiles
from store_samples import SMALL, bodies, pending

from millstream.model.errors import StoreError
from millstream.store.message_store import MessageStore


def content_of(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def test_a_later_format_is_refused_with_its_number_and_every_file_untouched(tmp_path: Path) -> None:
    store = MessageStore.open(tmp_path, SMALL, files=HastyFiles())
    store.put([pending(b"kept")])
    store.close()
    said = b"millstream-store 7"
    (tmp_path / "format").write_bytes(b"%b %08x\n" % (said, crc32(said)))
    before = content_of(tmp_path)
    with pytest.raises(StoreError, match="format 7") as refused:
        MessageStore.open(tmp_path, SMALL, files=HastyFiles())
    assert refused.value.name == "STORE_FORMAT"
    assert content_of(tmp_path) == before


def test_a_damaged_line_is_named_once_and_written_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = MessageStore.open(tmp_path, SMALL, files=HastyFiles())
    store.put([pending(b"kept")])
    store.close()
    whole = (tmp_path / "format").read_bytes()
    (tmp_path / "format").write_bytes(whole.replace(b"1", b"9", 1))
    again = MessageStore.open(tmp_path, SMALL, files=HastyFiles())
    assert bodies(again) == [b"kept"]
    again.close()
    assert (tmp_path / "format").read_bytes() == whole
    assert [record.message for record in caplog.records] == [f"{tmp_path / 'format'} is damaged and is written again."]
