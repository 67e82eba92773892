"""The head that files of all kinds begin with."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from millstream.model.errors import StoreError
from millstream.store.file_head import HEAD_BYTES, file_head, is_whole_head

MAGIC = b"MSKEYRUN"
PATH = Path("index/a")


def test_a_head_is_magic_version_and_checksum_in_16_bytes() -> None:
    checked = MAGIC + b"\0\0\0\2"
    assert file_head(MAGIC, 2) == checked + crc32(checked).to_bytes(4, "big")


def test_a_head_with_any_bit_flipped_or_cut_short_is_damaged_and_of_no_other_version() -> None:
    whole = file_head(MAGIC, 1)
    assert is_whole_head(whole + b"more", MAGIC, 1, PATH)
    assert not is_whole_head(whole, b"MSTIMERS", 1, PATH)
    for size in range(HEAD_BYTES):
        assert not is_whole_head(whole[:size], MAGIC, 1, PATH)
    for bit in range(HEAD_BYTES * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not is_whole_head(bytes(flipped), MAGIC, 1, PATH)


def test_a_whole_head_of_another_version_is_refused_with_the_file_and_both_versions() -> None:
    with pytest.raises(StoreError, match="index/a has the format 2, not 1") as caught:
        is_whole_head(file_head(MAGIC, 2), MAGIC, 1, PATH)
    assert caught.value.name == "STORE_FORMAT"
