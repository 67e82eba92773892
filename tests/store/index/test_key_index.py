"""What a query by key answers, from runs and from the log's tail alike."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from key_index_samples import ALL_TIMES, IndexedStore, keyed, keyed_batch

from millstream.model.message import SystemFlag
from millstream.protocol.remoting.messages.batch import encode_batch_item
from millstream.store.index import key_index as run_builder
from millstream.store.index import log_stretch, record_keys
from millstream.store.index.key_index import DEFAULT_RESULTS, MAX_RESULTS
from millstream.store.index.run import key_hash


@pytest.fixture(params=["tail", "tail in small windows", "run"])
def indexed(request: pytest.FixtureRequest, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IndexedStore]:
    """A store that answers from the log's tail, and one whose puts are covered by runs at once."""
    store = IndexedStore(scratch / "store")
    if request.param == "tail in small windows":
        monkeypatch.setattr(log_stretch, "_WINDOW_BYTES", 16)
        monkeypatch.setattr(log_stretch, "_WAYPOINT_BYTES", 300)
    if request.param == "run":
        put = store.put

        def put_and_extend(*records: object, **named: object) -> list[int]:
            offsets = put(*records, **named)  # type: ignore[arg-type]
            assert store.extend()
            return offsets

        store.put = put_and_extend  # type: ignore[method-assign]
    yield store
    store.close()


def test_each_word_of_the_keys_and_the_unique_key_leads_to_the_message(indexed: IndexedStore) -> None:
    (offset,) = indexed.put(keyed("order-7 customer-3", "AC11"))
    for key in ("order-7", "customer-3", "AC11"):
        assert indexed.find(key) == [offset]
    for key in ("order-7 customer-3", "order", "rder-7", "order-77", "AC1", "a", ""):
        assert indexed.find(key) == []


def test_a_unique_key_with_a_space_is_one_key(indexed: IndexedStore) -> None:
    (offset,) = indexed.put(keyed("x", "one two"))
    assert indexed.find("one two") == [offset]
    assert indexed.find("one") == []


def test_spaces_around_words_make_no_empty_keys(indexed: IndexedStore) -> None:
    (offset,) = indexed.put(keyed("  a   b ", ""))
    assert indexed.find("a") == indexed.find("b") == [offset]
    assert indexed.find("") == indexed.find(" ") == []
    assert record_keys.keys_of(b"\x02UNIQ_KEY\x01\x02KEYS\x01  a   b \x02") == [b"a", b"b"]


def test_keys_are_any_unicode(indexed: IndexedStore) -> None:
    keys = ["zażółć", "注文", "🚚", "e\u0301", "\u00e9"]
    offsets = indexed.put(*(keyed(key) for key in keys))
    assert [indexed.find(key) for key in keys] == [[offset] for offset in offsets]


def test_a_key_that_no_record_can_hold_finds_nothing(indexed: IndexedStore) -> None:
    indexed.put(keyed("a?"), keyed("a"))
    assert indexed.find("a\ud800") == []
    assert indexed.find("a", topic="orders\ud800") == []


def test_a_message_that_has_a_key_twice_is_answered_once(indexed: IndexedStore) -> None:
    (offset,) = indexed.put(keyed("k k", "k"))
    assert indexed.find("k") == [offset]


def test_other_topics_and_texts_that_only_look_like_keys_are_not_answered(indexed: IndexedStore) -> None:
    (offset,) = indexed.put(keyed("k"))
    indexed.put(keyed("k", topic="others"), keyed("x", body=b"\x02KEYS\x01k\x02 k \x01k\x02"), keyed("TAGS a"))
    assert indexed.find("k") == [offset]
    assert len(indexed.find("k", topic="others")) == 1
    assert len(indexed.find("a")) == 1


def test_a_whole_record_inside_of_a_body_is_not_answered(indexed: IndexedStore) -> None:
    (offset,) = indexed.put(keyed("k"))
    record = bytes(indexed.store.raw(offset, indexed.end - offset))  # type: ignore[arg-type]
    indexed.put(keyed("x", body=record))
    assert indexed.find("k") == [offset]


def test_the_newest_come_first_and_no_more_than_asked_for(indexed: IndexedStore) -> None:
    offsets = [indexed.put(keyed("k", f"u{number}"))[0] for number in range(MAX_RESULTS + 10)]
    newest = offsets[::-1]
    assert indexed.find("k", count=3) == newest[:3]
    assert indexed.find("k", count=1000) == newest[:MAX_RESULTS]
    assert indexed.index.find("orders", "k", *ALL_TIMES, visible_log_offset=indexed.end) == newest[:DEFAULT_RESULTS]
    assert indexed.find("k", count=0) == indexed.find("k", count=-1) == []


def test_a_key_is_found_wherever_it_stands(indexed: IndexedStore) -> None:
    for number in range(40):
        indexed.put(keyed(f"k{number} word{number} same", f"unique-key-{number}", body=b"k1 same" * number))
    indexed.check()


def test_a_run_ends_early_where_there_are_very_many_keys(
    indexed: IndexedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_builder, "MAX_BUILT_ENTRIES", 7)
    indexed.put(*(keyed(f"k{number} a b c d", f"u{number}") for number in range(9)), keyed())
    assert indexed.extend()
    assert max(run.entries for run in indexed.index._runs if not run.span.level) <= 7 + 6
    indexed.check()


def test_keys_beyond_the_limit_of_one_record_are_left_out(
    indexed: IndexedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_keys, "MAX_KEYS_PER_RECORD", 2)
    first, second = indexed.put(keyed("a b c"), keyed("c"))
    assert indexed.find("b") == [first]
    assert indexed.find("c") == [second]


def test_times_are_inclusive_to_the_millisecond(indexed: IndexedStore) -> None:
    for number in range(9):
        indexed.put(keyed("k", f"u{number}"))
    times = [each.stored_ms for each in indexed.stored]
    for begin in (times[0] - 1, times[2], times[2] + 1, times[8]):
        for end in (times[0], times[2] - 1, times[2], times[7], times[8] + 1):
            assert indexed.find("k", times=(begin, end)) == indexed.expected("k", times=(begin, end))


def test_what_is_not_visible_is_not_answered(indexed: IndexedStore) -> None:
    first, second, third = (indexed.put(keyed("k"))[0] for _ in range(3))
    assert indexed.find("k", visible=third) == [second, first]
    assert indexed.find("k", visible=first) == []


def test_the_messages_of_an_inner_batch_lead_to_its_record(indexed: IndexedStore) -> None:
    inner = [("a b", "u1"), (None, "u2"), ("c", None), (None, None)]
    (offset,) = indexed.put(keyed_batch(inner, "whole"), keys={"a", "b", "c", "u1", "u2"})
    for key in ("a", "b", "c", "u1", "u2", "whole"):
        assert indexed.find(key, topic="batches") == [offset]
    assert indexed.find("body", topic="batches") == []


def test_a_last_property_without_its_end_mark_still_gives_its_key(indexed: IndexedStore) -> None:
    whole = keyed_batch([("k", None)] * 2, "whole")
    body = b""
    for key in (b"first", b"last"):
        text = b"KEYS\x01" + key
        body += (22 + len(text)).to_bytes(4, "big") + bytes(16) + len(text).to_bytes(2, "big") + text
    message = whole.message.__class__("batches", body, {}, system_flag=SystemFlag.INNER_BATCH)
    (offset,) = indexed.put(whole._replace(message=message, batch_count=2), keys={"first", "last"})
    assert indexed.find("first", topic="batches") == indexed.find("last", topic="batches") == [offset]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"\xff" * 50,
        bytes(60),
        (1000).to_bytes(4, "big") + bytes(40),
        # Its second message would end where it begins.
        encode_batch_item(b"", {}) + struct.pack(">iiiiih", 0, 0, 0, 0, -22, 0),
    ],
)
def test_an_inner_batch_that_cannot_be_read_has_its_own_keys(indexed: IndexedStore, body: bytes) -> None:
    (offset,) = indexed.put(keyed("k", body=body, flag=SystemFlag.INNER_BATCH))
    assert indexed.find("k") == [offset]


def test_an_arrow_batch_has_its_own_keys_alone(indexed: IndexedStore) -> None:
    inner = keyed_batch([("inner", None)], "x").message.body
    (offset,) = indexed.put(keyed("own", body=inner, flag=SystemFlag.INNER_BATCH | SystemFlag.ARROW_BATCH))
    assert indexed.find("own") == [offset]
    assert indexed.find("inner") == []


def test_a_message_rolled_back_is_not_answered_and_a_prepared_one_is(indexed: IndexedStore) -> None:
    indexed.put(keyed("rolled", flag=SystemFlag.TRANSACTION_ROLLBACK))
    (offset,) = indexed.put(keyed("prepared", flag=SystemFlag.TRANSACTION_PREPARED))
    assert indexed.find("rolled") == []
    assert indexed.find("prepared") == [offset]


def test_ipv6_hosts_and_long_topics_change_nothing(indexed: IndexedStore) -> None:
    topic = "t" * 200
    offsets = indexed.put(keyed("k", born_host="2001:db8::7"), keyed("k", topic=topic), keyed("z"))
    assert indexed.find("k") == offsets[:1]
    assert indexed.find("k", topic=topic) == offsets[1:2]
    assert indexed.find("z") == offsets[2:]


def test_keys_with_equal_hashes_are_told_apart(indexed: IndexedStore) -> None:
    assert key_hash(b"orders", b"plumless") == key_hash(b"orders", b"buckeroo")
    first, second = indexed.put(keyed("plumless"), keyed("buckeroo"))
    assert indexed.find("plumless") == [first]
    assert indexed.find("buckeroo") == [second]


def test_messages_of_a_deleted_topic_are_not_answered_and_new_ones_are(indexed: IndexedStore) -> None:
    indexed.put(keyed("k"), keyed("k", topic="others"))
    indexed.store.delete_topic("orders")
    assert indexed.find("k") == []
    assert len(indexed.find("k", topic="others")) == 1
    (offset,) = indexed.put(keyed("k"))
    assert indexed.find("k") == [offset]


def test_a_record_damaged_in_the_log_is_not_answered_and_hides_no_other(indexed: IndexedStore) -> None:
    offsets = [indexed.put(keyed("k", f"u{number}"))[0] for number in range(30)]
    damaged, size = offsets[4], offsets[5] - offsets[4]
    segment = indexed.store._log.segment_at(damaged)
    assert segment is not None
    content = bytearray(segment.path.read_bytes())
    for position in range(size):
        at = damaged - segment.start + position
        content[at] ^= 0x40
        with segment.path.open("r+b") as file:
            file.write(content)
        indexed.reopen_index()
        assert indexed.find("k") == [offset for offset in reversed(offsets) if offset != damaged]
        content[at] ^= 0x40
    with segment.path.open("r+b") as file:
        file.write(content)
    assert indexed.find("k") == offsets[::-1]


def test_an_index_made_from_a_log_with_a_damaged_place_knows_all_else(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store")
    offsets = [indexed.put(keyed("k", f"u{number}"))[0] for number in range(30)]
    damaged = offsets[4]
    segment = indexed.store._log.segment_at(damaged)
    assert segment is not None
    for position in (0, 1, 3, 5, 30, 87, 90, 100):
        content = bytearray(segment.path.read_bytes())
        content[damaged - segment.start + position] ^= 0x81
        with segment.path.open("r+b") as file:
            file.write(content)
        for path in indexed.run_files():
            path.unlink()
        indexed.reopen_index()
        assert indexed.extend()
        assert indexed.find("k") == [offset for offset in reversed(offsets) if offset != damaged]
    indexed.close()


def test_a_stretch_of_the_log_is_searched_between_its_ends_only(scratch: Path) -> None:
    indexed = IndexedStore(scratch / "store")
    offsets = indexed.put(*(keyed("k") for _ in range(40)))
    stretch = log_stretch.LogStretch(indexed.store._log, offsets[10], offsets[30], lambda: None)
    assert list(stretch.candidates(b"orders", b"k", indexed.end)) == offsets[10:30][::-1]
    assert list(stretch.candidates(b"orders", b"k", offsets[20])) == offsets[10:20][::-1]
    indexed.close()
