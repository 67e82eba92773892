"""Large rows are prepared in steps beside other changes, and taken up while threads read: nothing is torn."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.tiered import cold_map
from millstream.tiered.cold_map import (
    ColdMap,
    ColdObject,
    ColdPart,
    ColdStretch,
    commit_stretch,
    drop_topic,
    object_key,
    release_objects,
    remove_objects,
)

QUEUES = [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
LOG_BYTES = 10
SHARES = st.lists(st.integers(0, 3), min_size=4, max_size=4)
MEANWHILE = ["nothing", "nothing", "upload", "upload", "remove", "delete", "merge"]
_Place = tuple[str, int, int]


def pack(name: str, number: int, parts: dict[tuple[str, int], tuple[int, int]]) -> ColdObject:
    own = tuple(ColdPart(*queue, first, behind, first, behind) for queue, (first, behind) in parts.items())
    return ColdObject(object_key(name, number), 1, 0, own)


def join(name: str, sources: list[ColdStretch], carried: int | None) -> tuple[ColdObject, ...]:
    """The objects of a row that replaces these: what each queue has becomes one range; one object stays."""
    stays = [one for row in sources for one in row.objects or ()]
    stays = [] if carried is None or not stays else [stays[carried % len(stays)]]
    # As in a real merge, an object whose queues others have, too, does not stay.
    others = [part for row in sources for one in row.objects or () if one not in stays for part in one.parts]
    places = {(part.topic, part.queue_id) for part in others}
    stays = [one for one in stays if not any((part.topic, part.queue_id) in places for part in one.parts)]
    merged: dict[tuple[str, int], tuple[int, int]] = {}
    for row in sources:
        for one in row.objects or ():
            for part in one.parts if one not in stays else ():
                place = part.topic, part.queue_id
                merged[place] = merged.get(place, (part.first_queue_offset, 0))[0], part.next_queue_offset
    halves = [*merged.items()][::2], [*merged.items()][1::2]
    new = [pack(name, number, dict(half)) for number, half in enumerate(halves) if half]
    return (*new, *stays)


def places_of(cold: ColdMap) -> dict[_Place, str]:
    """All messages that readers find, and in which objects."""
    return {
        (topic, queue_id, offset): one.key
        for topic, queue_id in cold.queues()
        for one in cold.ranges(topic, queue_id)
        for offset in range(one.first_queue_offset, one.next_queue_offset)
    }


class LineByLine:
    """Calls `look` before each line of the map's module that runs within: what a thread might see."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look, self._is_looking, self.lines = look, False, 0

    def __enter__(self) -> LineByLine:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != cold_map.__file__ or self._is_looking:
            return None
        if event == "line":
            self._is_looking = True
            try:
                self._look()
            finally:
                self._is_looking = False
            self.lines += 1
        return self._trace


class StepMachine(RuleBasedStateMachine):
    """One map takes up each row at once; the other one, which readers watch all the while, prepares some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(cold_map, "STEP_PARTS", 1)
        self.plain, self.watched = ColdMap(), ColdMap()
        self.next_offset = dict.fromkeys(QUEUES, 0)
        self.rows = self.log_end = 0
        self.deleted: set[str] = set()
        """Topics, since the last merge was begun."""

    def teardown(self) -> None:
        self.patches.undo()

    def apply(self, name: str, row: ColdStretch | None) -> None:
        self.plain.apply(name, row)
        before, after = places_of(self.watched), places_of(self.plain)
        ends = {self.watched.uploaded_log_offset, self.plain.uploaded_log_offset}
        log = {begin: bool(self.watched.objects_at(begin)) for begin in range(0, self.log_end, LOG_BYTES)}
        log = {begin: is_there and bool(self.plain.objects_at(begin)) for begin, is_there in log.items()}

        def look() -> None:
            uploaded = self.watched.uploaded_log_offset
            for (topic, queue_id, offset), key in after.items():
                found = self.watched.find(topic, queue_id, offset)
                known = {key, before.get((topic, queue_id, offset))}
                if uploaded == self.plain.uploaded_log_offset != min(ends):
                    assert found is not None, "the disk may let go of what nobody finds"
                if (topic, queue_id, offset) in before:
                    assert found is not None
                    assert found.key in known
                    assert found.first_queue_offset <= offset
            for topic, queue_id in self.watched.queues():
                ranges = self.watched.ranges(topic, queue_id)
                bounds = [end for one in ranges for end in (one.first_queue_offset, one.next_queue_offset)]
                assert bounds == sorted(bounds)
            assert uploaded in ends
            assert all(self.watched.objects_at(begin) for begin, is_there in log.items() if is_there)

        held = [(ranges, [*ranges]) for queues in self.watched._queues.values() for ranges in queues.values()]
        with LineByLine(look) as traced:
            self.watched.apply(name, row)
        assert traced.lines
        # A thread may be within its search of a list: it only grows.
        assert all(ranges[: len(known)] == known for ranges, known in held)

    @initialize(shares=SHARES)
    def have_rows(self, shares: list[int]) -> None:
        for turn in range(4):
            self.upload(shares[turn:] + shares[:turn], 1 + turn % 2)

    @rule(shares=SHARES, packs=st.integers(1, 2))
    def upload(self, shares: list[int], packs: int) -> None:
        self.rows += 1
        name, parts = f"r{self.rows}", {}
        for queue, count in zip(QUEUES, shares, strict=True):
            if count:
                parts[queue] = self.next_offset[queue], self.next_offset[queue] + count
                self.next_offset[queue] += count
        row = ColdStretch(0, self.log_end, self.log_end + LOG_BYTES)
        self.apply(name, row)
        halves = [*parts.items()][::2], [*parts.items()][1::2]
        chosen = [dict(half) for half in halves if half] if packs == 2 else [parts] if parts else []
        self.log_end = row.log_end
        self.apply(name, commit_stretch(row, [pack(name, number, one) for number, one in enumerate(chosen)]))

    @rule(
        data=st.data(),
        first=st.integers(0, 3),
        count=st.integers(2, 4),
        carried=st.none() | st.integers(0, 3),
        meanwhile=st.lists(st.sampled_from(MEANWHILE), max_size=6),
    )
    def merge(self, data: st.DataObject, first: int, count: int, carried: int | None, meanwhile: list[str]) -> None:
        """What no longer fits of what was prepared is not used, also in a merge that a broker would drop."""
        sources = dict(self.plain.stretches()[first : first + count])
        if len(sources) < 2:
            return
        self.rows += 1
        name, rows = f"m{self.rows}", [*sources.values()]
        row = ColdStretch(0, rows[0].log_begin, rows[-1].log_end, replaces=tuple(sources), generation=1)
        self.apply(name, row)
        row = commit_stretch(row, join(name, rows, carried))
        steps, self.deleted = self.watched.prepare(name, row), set()
        for what in meanwhile:
            next(steps, None)
            self.act(data, what)
        if data.draw(st.booleans()):
            for _ in steps:
                pass
        if any(one not in self.plain.rows or self.plain.is_replaced(one) for one in sources):
            self.apply(name, None)
            return
        for topic in self.deleted:
            if any(part.topic == topic for one in row.objects or () for part in one.parts):
                row = drop_topic(row, topic, 5)
        self.apply(name, row)

    def act(self, data: st.DataObject, what: str) -> None:
        """What other turns of the loop do between two steps."""
        if what == "upload":
            self.upload(data.draw(SHARES), 1)
        elif what == "remove" and self.plain.stretches():
            self.remove(data)
        elif what == "delete":
            self.delete_topic(data.draw(st.sampled_from("abc")))
        elif what == "merge":
            # A broker has one merge at a time, a map any number.
            self.merge_at_once(data.draw(st.integers(0, 3)))

    def merge_at_once(self, first: int) -> None:
        sources = dict(self.plain.stretches()[first : first + 2])
        if len(sources) == 2:
            self.rows += 1
            name, rows = f"m{self.rows}", [*sources.values()]
            objects = join(name, rows, None)
            row = ColdStretch(0, rows[0].log_begin, rows[1].log_end, objects, replaces=tuple(sources), generation=1)
            self.apply(name, row)

    @rule()
    def release(self) -> None:
        for name, kept in self.plain.find_unreleased().items():
            self.apply(name, release_objects(self.plain.rows[name], kept, 5))

    @precondition(lambda self: self.plain.stretches())
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name, one = data.draw(st.sampled_from([*self.plain.objects]))
        self.apply(name, remove_objects(self.plain.rows[name], [one.key], 5))

    @rule(topic=st.sampled_from("abc"))
    def delete_topic(self, topic: str) -> None:
        """A new topic of its name begins at 0 again."""
        self.deleted.add(topic)
        rows = {
            name
            for name, row in self.plain.rows.items()
            if any(part.topic == topic for one in row.objects or () for part in one.parts)
        }
        assert {name for name, _ in self.plain.rows_with(topic)} == rows
        for name in rows:
            self.apply(name, drop_topic(self.plain.rows[name], topic, 5))
        self.next_offset.update((queue, 0) for queue in QUEUES if queue[0] == topic)

    @rule()
    def tidy_up(self) -> None:
        for name in self.plain.empty_rows():
            self.apply(name, None)

    @invariant()
    def both_say_the_same(self) -> None:
        assert places_of(self.watched) == places_of(self.plain)
        for topic, queue_id in self.plain.queues():
            assert self.watched.ranges(topic, queue_id) == self.plain.ranges(topic, queue_id)
            assert self.watched.rows_from(topic, 0) == self.plain.rows_from(topic, 0)
        assert {key for _, _, key in self._objects(self.watched)} == {*places_of(self.plain).values()}
        assert self._objects(self.watched) == self._objects(self.plain)
        assert self.watched.uploaded_log_offset == self.plain.uploaded_log_offset
        assert self.watched.uploaded_log_offset == max(
            (row.log_end for row in self.plain.rows.values() if row.objects is not None), default=0
        )
        assert self.watched.find_unreleased() == self.plain.find_unreleased()
        assert self.watched.empty_rows() == self.plain.empty_rows()

    @staticmethod
    def _objects(cold: ColdMap) -> list[tuple[str, ColdStretch, str]]:
        return [(name, cold.rows[name], one.key) for name, one in cold.objects]


TestColdMapInSteps = StepMachine.TestCase
TestColdMapInSteps.settings = settings(max_examples=100, stateful_step_count=20, deadline=None)


def rows_of(count: int, queues: int) -> tuple[ColdMap, dict[str, ColdStretch]]:
    cold = ColdMap()
    for number in range(count):
        parts = {(f"t{queue}", 0): (number, number + 1) for queue in range(queues)}
        objects = (pack(f"r{number}", 0, parts),)
        cold.apply(f"r{number}", ColdStretch(0, number * LOG_BYTES, (number + 1) * LOG_BYTES, objects))
    return cold, dict(cold.rows)


def test_a_row_that_was_prepared_is_taken_up_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    cold, rows = rows_of(3, 7)
    monkeypatch.setattr(cold_map, "STEP_PARTS", 2)
    row = ColdStretch(0, 0, 3 * LOG_BYTES, join("m", [*rows.values()], None), replaces=tuple(rows), generation=1)
    before = places_of(cold)
    assert sum(1 for _ in cold.prepare("m", row)) == 1 + 3
    assert places_of(cold) == before
    searched: list[object] = []
    replace = cold_map._replace
    monkeypatch.setattr(cold_map, "_replace", lambda *words: searched.append(words) or replace(*words))
    cold.apply("later", ColdStretch(0, 30, 40, (pack("later", 0, {("t4", 0): (3, 4)}),)))
    cold.apply("m", row)
    # Of the queue that has grown since.
    assert len(searched) == 1
    assert [one.key for one in cold.ranges("t3", 0)] == [object_key("m", 1)]
    assert [one.first_queue_offset for one in cold.ranges("t4", 0)] == [0, 3]
    assert len(cold._spent) == 7
    assert sum(1 for _ in cold.give_back()) == 4
    assert not cold._spent


def test_what_was_prepared_is_forgotten_with_the_row() -> None:
    cold, rows = rows_of(2, 3)
    row = ColdStretch(0, 0, 2 * LOG_BYTES, join("m", [*rows.values()], None), replaces=tuple(rows), generation=1)
    for _ in cold.prepare("m", row):
        pass
    assert cold._ready is not None
    cold.apply("m", None)
    assert cold._ready is None


def test_of_an_object_with_two_ranges_of_a_queue_each_goes_alone() -> None:
    cold = ColdMap()
    parts = (ColdPart("a", 0, 0, 2, 0, 0), ColdPart("a", 0, 5, 7, 0, 0), ColdPart("b", 0, 0, 1, 0, 0))
    row = ColdStretch(0, 0, 10, (ColdObject("r/0", 1, 0, parts),))
    for kept in (parts[:1], parts[1:2], parts[2:], parts[:2]):
        cold.apply("r", row)
        assert len(cold.ranges("a", 0)) == 2
        cold.apply("r", ColdStretch(0, 0, 10, (ColdObject("r/0", 1, 0, kept),)))
        found = [one.first_queue_offset for queue in cold.queues() for one in cold.ranges(*queue)]
        assert found == [one.first_queue_offset for one in kept]
        cold.apply("r", None)
        assert not cold.queues()


def test_an_object_that_has_other_offsets_now_is_found_by_these_alone() -> None:
    cold = ColdMap()
    for first, behind in ((0, 3), (2, 4), (1, 9), (0, 1)):
        cold.apply("r", ColdStretch(0, 0, 10, (pack("r", 0, {("a", 0): (first, behind)}),)))
        assert [(one.first_queue_offset, one.next_queue_offset) for one in cold.ranges("a", 0)] == [(first, behind)]


def test_what_was_prepared_is_not_used_once_something_else_is_to_go() -> None:
    maps = []
    for prepares in (False, True):
        cold, rows = rows_of(2, 2)
        row = ColdStretch(0, 0, 2 * LOG_BYTES, join("m", [*rows.values()], None), replaces=tuple(rows), generation=1)
        if prepares:
            assert len([*cold.prepare("m", row)]) == 1
        # Another row has taken over an object meanwhile, and its ranges are where they were.
        cold.apply("x", ColdStretch(0, 0, LOG_BYTES, rows["r0"].objects, replaces=("r0",)))
        cold.apply("m", row)
        maps.append(cold)
    assert [maps[0].ranges(*queue) for queue in maps[0].queues()] == [
        maps[1].ranges(*queue) for queue in maps[0].queues()
    ]
    assert [one.first_queue_offset for one in maps[1].ranges("t0", 0)] == [0, 0]


def test_what_was_prepared_is_not_used_once_more_is_to_come() -> None:
    cold, rows = rows_of(2, 1)
    cold.apply("s", ColdStretch(0, 0, LOG_BYTES, (pack("s", 0, {("alone", 0): (0, 1)}),)))
    rows = dict(cold.rows)
    objects = (*join("m", [rows["r0"], rows["r1"]], None), *(rows["s"].objects or ()))
    row = ColdStretch(0, 0, 2 * LOG_BYTES, objects, replaces=tuple(rows), generation=1)
    for _ in cold.prepare("m", row):
        pass
    # What the row goes on with is gone when it is taken up.
    cold.apply("s", remove_objects(rows["s"], ["s/00000.msc"], 5))
    cold.apply("m", row)
    assert [one.key for one in cold.ranges("alone", 0)] == ["s/00000.msc"]
    assert [one.key for one in cold.ranges("t0", 0)] == ["m/00000.msc"]


def test_of_two_objects_with_the_same_offsets_the_one_that_is_removed_goes() -> None:
    cold = ColdMap()
    for name in "rs":
        cold.apply(name, ColdStretch(0, 0, 10, (pack(name, 0, {("a", 0): (0, 3)}),)))
    cold.apply("s", ColdStretch(0, 0, 10, ()))
    assert [one.key for one in cold.ranges("a", 0)] == ["r/00000.msc"]


def test_a_thread_that_looks_for_a_place_in_the_log_during_a_merge_finds_an_object() -> None:
    cold, rows = rows_of(2, 1)
    row = ColdStretch(0, 0, 2 * LOG_BYTES, join("m", [*rows.values()], None), replaces=tuple(rows), generation=1)

    class Rows(dict[str, ColdStretch]):
        def items(self) -> Any:
            """What there was when the loop took up the merged row."""
            found = [*super().items()]
            cold.apply("m", row)
            return found

    cold.rows = Rows(rows)
    assert [one.key for one in cold.objects_at(5)] == ["r0/00000.msc"]
    assert [one.key for one in cold.objects_at(5)] == ["m/00000.msc"]
