"""Verifying finds each change of an object; orphans are what no row names and what is old enough."""

from __future__ import annotations

from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_upload import _uploaded

from millstream.tiered.cold_map import ColdMap, ColdObject, ColdStretch, remove_objects
from millstream.tiered.objects import ObjectInfo
from millstream.tiered.verification import ORPHAN_MS, find_orphans, verify_object


def test_a_whole_object_has_no_problem() -> None:
    objects, cold, _ = _uploaded()
    for _, one in cold.objects:
        assert verify_object(one, objects.objects[one.key]) == ""


@given(data=st.data())
def test_any_change_of_any_byte_is_a_problem(data: st.DataObject) -> None:
    objects, cold, _ = _uploaded()
    one = data.draw(st.sampled_from([one for _, one in cold.objects]))
    whole = objects.objects[one.key]
    position = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:position] + bytes([whole[position] ^ data.draw(st.integers(1, 255))]) + whole[position + 1 :]
    assert verify_object(one, changed)
    assert verify_object(one, whole[:position])


def test_an_object_that_was_damaged_before_it_was_put_is_a_problem() -> None:
    objects, cold, _ = _uploaded()
    one = next(one for _, one in cold.objects)
    changed = bytearray(objects.objects[one.key])
    changed[20] ^= 1
    row = msgspec.structs.replace(one, checksum=crc32(changed))
    assert "fails its checksum" in verify_object(row, bytes(changed))


def test_a_whole_object_with_the_messages_of_another_row_is_a_problem() -> None:
    objects, cold, _ = _uploaded()
    one = next(one for _, one in cold.objects)
    longer = msgspec.structs.replace(one.parts[0], next_queue_offset=one.parts[0].next_queue_offset + 1)
    row = msgspec.structs.replace(one, parts=(longer, *one.parts[1:]))
    assert "lacks the offsets" in verify_object(row, objects.objects[one.key])


@pytest.mark.parametrize(
    ("key", "age_ms", "is_orphan"),
    [
        ("ms1/c/b/log/1/00000.msc", ORPHAN_MS + 1, False),
        ("ms1/c/b/log/2/00000.msc", ORPHAN_MS + 1, False),
        ("ms1/c/b/log/3/00007.msc", ORPHAN_MS + 1, False),
        ("ms1/c/b/manifest/00001", ORPHAN_MS + 1, False),
        ("ms1/c/b/log/1/00001.msc", ORPHAN_MS + 1, True),
        ("ms1/c/b/log/1/00001.msc", ORPHAN_MS, False),
        ("ms1/c/b/log/33/00000.msc", ORPHAN_MS + 1, True),
    ],
)
def test_only_what_no_row_names_and_is_a_day_old_is_an_orphan(key: str, age_ms: int, is_orphan: bool) -> None:
    cold = ColdMap()
    found, removed = (ColdObject(f"ms1/c/b/log/{number}/00000.msc", 1, 1, ()) for number in (1, 2))
    cold.apply("ms1/c/b/log/1", ColdStretch(0, 0, 10, (found,)))
    cold.apply("ms1/c/b/log/2", remove_objects(ColdStretch(0, 10, 20, (removed,)), [removed.key], 5))
    cold.apply("ms1/c/b/log/3", ColdStretch(0, 20, 30))
    info = ObjectInfo(key, 1, 10 * ORPHAN_MS - age_ms)
    orphans = [*find_orphans(cold, [info], "ms1/c/b/manifest/", 10 * ORPHAN_MS)]
    assert orphans == ([info] if is_orphan else [])
