"""The map of cold data against a naive one, over any order of uploads, losses, removals and restarts."""

from __future__ import annotations

from itertools import pairwise, permutations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.tiered.cold_map import (
    ColdMap,
    ColdObject,
    ColdPart,
    ColdStretch,
    commit_stretch,
    forget_objects,
    object_key,
    release_objects,
    remove_objects,
    stretch_name,
)

QUEUES = [("a", 0), ("a", 1), ("b", 0)]
Shares = list[tuple[int, int]]


class ColdMapMachine(RuleBasedStateMachine):
    """The model is a dictionary from (topic, queue, offset) to the key of the object that holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.map = ColdMap()
        self.model: dict[tuple[str, int, int], str] = {}
        self.next_offset = dict.fromkeys(QUEUES, 0)
        self.uploaded = 0
        self.attempts = 0
        self.removed: set[str] = set()

    @rule(
        shares=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=3, max_size=3),
        log_bytes=st.integers(1, 9),
        is_committed=st.booleans(),
    )
    def upload(self, shares: Shares, log_bytes: int, is_committed: bool) -> None:
        """A stretch from where the last committed one ends, with holes before some queues' parts."""
        self.attempts += 1
        name = stretch_name("c", "b", self.uploaded, self.attempts, "u")
        row = ColdStretch(self.attempts, self.uploaded, self.uploaded + log_bytes)
        self.map.apply(name, row)
        assert name in self.map.begun
        if not is_committed:
            return
        objects = []
        for number, ((length, hole), queue) in enumerate(zip(shares, QUEUES, strict=True)):
            first = self.next_offset[queue] + hole
            if length:
                self.next_offset[queue] = first + length
                part = ColdPart(*queue, first, first + length, first * 10, (first + length) * 10)
                objects.append(ColdObject(object_key(name, number), 1, 0, (part,)))
                self.model |= {(*queue, offset): objects[-1].key for offset in range(first, first + length)}
        self.map.apply(name, commit_stretch(row, objects))
        self.uploaded = row.log_end

    @rule(topic=st.sampled_from("abc"), log_begin=st.integers(0, 60))
    def list_rows(self, topic: str, log_begin: int) -> None:
        rows = sorted(self.map.rows.items(), key=lambda pair: pair[1].log_begin)
        wanted = [
            name
            for name, row in rows
            if row.log_begin >= log_begin
            and not self.map.is_replaced(name)
            and any(part.topic == topic for one in row.objects or () for part in one.parts)
        ]
        assert [name for name, _ in self.map.rows_from(topic, log_begin)] == wanted

    @precondition(lambda self: self.map.begun)
    @rule()
    def drop(self) -> None:
        """As the next master does with what the last one began."""
        for name in self.map.begun:
            self.map.apply(name, None)

    @rule(data=st.data(), is_cut_off=st.booleans(), carries=st.booleans())
    def merge(self, data: st.DataObject, is_cut_off: bool, carries: bool) -> None:
        """Rows that follow one another become one: of its objects some are new and some are theirs."""
        there = self.map.stretches()
        first = data.draw(st.integers(0, len(there)))
        chosen = there[first : first + data.draw(st.integers(0, 3))]
        if len(chosen) < 2:
            return
        self.attempts += 1
        (_, begin), (_, end) = chosen[0], chosen[-1]
        name = stretch_name("c", "b", begin.log_begin, self.attempts, "m")
        row = ColdStretch(
            self.attempts, begin.log_begin, end.log_end, replaces=tuple(name for name, _ in chosen), generation=1
        )
        self.map.apply(name, row)
        objects = []
        for queue in QUEUES:
            own = [(one, part) for _, row in chosen for one in row.objects or () for part in one.parts]
            own = [(one, part) for one, part in own if (part.topic, part.queue_id) == queue]
            if own and carries and queue == QUEUES[0]:
                objects += [one for one, _ in own]
            elif own:
                parts = [part for _, part in own]
                merged = ColdPart(*queue, parts[0].first_queue_offset, parts[-1].next_queue_offset, 0, 1 << 40)
                key = object_key(name, len(objects))
                objects.append(ColdObject(key, 1, 0, (merged,)))
                keys = {one.key for one, _ in own}
                self.model = {place: key if other in keys else other for place, other in self.model.items()}
                # Of what was between them the block tells that it is not there.
                for before, after in pairwise(parts):
                    holes = range(before.next_queue_offset, after.first_queue_offset)
                    self.model |= {(*queue, offset): key for offset in holes}
        self.map.apply(name, commit_stretch(row, objects))
        if not is_cut_off:
            self.release()

    @rule()
    def release(self) -> None:
        """As the next round does with what a merge replaced."""
        for name, kept in self.map.find_unreleased().items():
            row = self.map.rows[name]
            self.removed |= {one.key for one in row.objects or () if one.key not in kept}
            self.map.apply(name, release_objects(row, kept, 5))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(set(self.model.values()))))
        [name] = [name for name, one in self.map.objects if one.key == key]
        self.map.apply(name, remove_objects(self.map.rows[name], [key, "never-there"], 5))
        self.model = {place: other for place, other in self.model.items() if other != key}
        self.removed.add(key)

    @precondition(lambda self: self.removed)
    @rule()
    def delete(self) -> None:
        key = self.removed.pop()
        for name in [name for name, row in self.map.rows.items() if key in row.removed_ms]:
            self.map.apply(name, forget_objects(self.map.rows[name], [key]))

    @rule()
    def tidy_up(self) -> None:
        for name in self.map.empty_rows():
            self.map.apply(name, None)

    @rule()
    def start_again(self) -> None:
        """The rows are read in whatever order a document has them."""
        rows = msgspec.json.decode(msgspec.json.encode(self.map.rows), type=dict[str, ColdStretch])
        self.map = ColdMap()
        for name in reversed(rows):
            self.map.apply(name, rows[name])

    @invariant()
    def finds_what_the_model_has(self) -> None:
        assert self.map.uploaded_log_offset == self.uploaded
        assert {key for row in self.map.rows.values() for key in row.removed_ms} == self.removed
        assert {one.key for _, one in self.map.objects} == set(self.model.values())
        assert set(self.map.queues()) == {(topic, queue_id) for topic, queue_id, _ in self.model}
        for topic, queue_id in QUEUES:
            own = sorted(offset for t, q, offset in self.model if (t, q) == (topic, queue_id))
            assert self.map.bounds(topic, queue_id) == ((own[0], own[-1] + 1) if own else None)
            for wanted in range(self.next_offset[topic, queue_id] + 2):
                following = next((offset for offset in own if offset >= wanted), None)
                found = self.map.find(topic, queue_id, wanted)
                if following is None:
                    assert found is None
                else:
                    assert found is not None
                    assert max(wanted, found.first_queue_offset) == following
                    assert found.key == self.model[topic, queue_id, following]


TestColdMap = ColdMapMachine.TestCase
TestColdMap.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_an_object_goes_when_the_last_of_its_parts_is_over() -> None:
    cold = ColdMap()
    parts = (ColdPart("short", 0, 0, 5, 0, 100), ColdPart("long", 0, 0, 5, 0, 900))
    cold.apply("s", ColdStretch(1, 0, 10, (ColdObject("s/0", 1, 0, parts),)))
    assert cold.find_expired({"short": 500}, 500) == {}
    assert cold.find_expired({"short": 101, "long": 900}, 0) == {}
    assert cold.find_expired({"short": 101, "long": 901}, 0) == {"s": ["s/0"]}


def test_the_row_that_says_how_far_the_log_has_gone_up_stays() -> None:
    cold = ColdMap()
    cold.apply("s", ColdStretch(1, 0, 10, ()))
    assert cold.empty_rows() == []
    cold.apply("t", ColdStretch(1, 10, 20, ()))
    assert cold.empty_rows() == ["s"]


def test_keys_of_two_attempts_at_one_stretch_never_meet() -> None:
    names = {stretch_name("c", "b", 5, epoch, unique) for epoch in (1, 2) for unique in ("x", "y")}
    assert len({object_key(name, number) for name in names for number in range(3)}) == 12


def _merged() -> dict[str, ColdStretch]:
    """Two rows and the one that replaces them, which a crash kept from letting their objects go."""
    rows = {
        f"r{begin}": ColdStretch(
            0, begin, begin + 10, (ColdObject(f"r{begin}/0", 1, 0, (ColdPart("a", 0, begin, begin + 10, 1, 2),)),)
        )
        for begin in (0, 10)
    }
    part = ColdPart("a", 0, 0, 20, 1, 2)
    rows["m"] = ColdStretch(0, 0, 20, (ColdObject("m/0", 1, 0, (part,)),), generation=1, replaces=("r0", "r10"))
    rows["later"] = ColdStretch(0, 20, 30, ())
    return rows


@pytest.mark.parametrize("order", [*permutations(("r0", "r10", "m"))])
def test_rows_that_were_merged_are_hidden_in_whatever_order_rows_come(order: tuple[str, ...]) -> None:
    cold, rows = ColdMap(), _merged()
    for name in order:
        cold.apply(name, rows[name])
    assert [one.key for one in cold.ranges("a", 0)] == ["m/0"]
    assert [one.key for one in cold.objects_at(15)] == ["m/0"]
    assert [name for name, _ in cold.rows_from("a", 0)] == ["m"]
    assert cold.find_unreleased() == {"r0": [], "r10": []}


def test_a_merged_row_stays_while_one_that_it_hides_is_there() -> None:
    cold, rows = ColdMap(), _merged()
    for name, row in rows.items():
        cold.apply(name, row)
    cold.apply("m", forget_objects(remove_objects(rows["m"], ["m/0"], 5), ["m/0"]))
    assert "m" not in cold.empty_rows()
    for name in ("r0", "r10"):
        cold.apply(name, None)
    assert "m" in cold.empty_rows()
