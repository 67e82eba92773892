"""The map of cold data against a naive one, over any order of uploads, losses, removals and restarts."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millstream.tiered.cold_map import (
    ColdMap,
    ColdObject,
    ColdPart,
    ObjectsDeleted,
    ObjectsRemoved,
    StretchBegun,
    StretchCommitted,
    StretchDropped,
    object_key,
    stretch_prefix,
)

QUEUES = [("a", 0), ("a", 1), ("b", 0)]


class ColdMapMachine(RuleBasedStateMachine):
    """The model is a dictionary from (topic, queue, offset) to the key of the object that holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.map = ColdMap()
        self.model: dict[tuple[str, int, int], str] = {}
        self.next_offset = dict.fromkeys(QUEUES, 0)
        self.uploaded = 0
        self.attempts = 0
        self.waiting: list[tuple[StretchBegun, StretchCommitted, dict[tuple[str, int], int]]] = []
        self.removed: set[str] = set()

    @rule(
        lengths=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=3, max_size=3),
        bytes_=st.integers(1, 9),
    )
    def begin(self, lengths: list[tuple[int, int]], bytes_: int) -> None:
        """A stretch from where the last committed one ends, with holes before some queues' parts."""
        self.attempts += 1
        name = stretch_prefix("c", "b", self.uploaded, self.attempts, "u")
        begun = StretchBegun(name, self.attempts, self.uploaded, self.uploaded + bytes_)
        following = dict(self.next_offset)
        objects = []
        for number, ((length, hole), queue) in enumerate(zip(lengths, QUEUES, strict=True)):
            first = following[queue] + hole
            if length:
                following[queue] = first + length
                part = ColdPart(*queue, first, first + length, first * 10, (first + length) * 10)
                objects.append(ColdObject(object_key(name, number), 1, 0, (part,)))
        self.map.apply(begun)
        self.waiting.append((begun, StretchCommitted(name, tuple(objects)), following))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        begun, committed, following = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.map.apply(committed)
        if begun.log_begin != self.uploaded:
            return
        self.uploaded, self.next_offset = begun.log_end, following
        for found in committed.objects:
            for part in found.parts:
                for offset in range(part.first_queue_offset, part.next_queue_offset):
                    self.model[part.topic, part.queue_id, offset] = found.key

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        begun, committed, _ = self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1)))
        self.map.apply(StretchDropped(begun.name))
        # A master that has lost its lease may still say that it has committed.
        self.map.apply(committed)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(set(self.model.values()))))
        self.map.apply(ObjectsRemoved((key, "never-there"), 5))
        self.model = {place: other for place, other in self.model.items() if other != key}
        self.removed.add(key)

    @precondition(lambda self: self.removed)
    @rule()
    def delete(self) -> None:
        key = self.removed.pop()
        self.map.apply(ObjectsDeleted((key,)))

    @rule()
    def start_again(self) -> None:
        self.map = ColdMap.restore(self.map.snapshot())

    @invariant()
    def finds_what_the_model_has(self) -> None:
        assert self.map.uploaded_log_offset == self.uploaded
        assert set(self.map.removed_ms) == self.removed
        assert set(self.map.objects) == set(self.model.values())
        for topic, queue_id in QUEUES:
            own = sorted(offset for t, q, offset in self.model if (t, q) == (topic, queue_id))
            assert self.map.bounds(topic, queue_id) == ((own[0], own[-1] + 1) if own else None)
            for asked in range(self.next_offset[topic, queue_id] + 2):
                following = next((offset for offset in own if offset >= asked), None)
                found = self.map.find(topic, queue_id, asked)
                if following is None:
                    assert found is None
                else:
                    assert found is not None
                    assert max(asked, found.first_queue_offset) == following
                    assert found.key == self.model[topic, queue_id, following]


TestColdMap = ColdMapMachine.TestCase
TestColdMap.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_an_object_goes_when_the_last_of_its_parts_is_over() -> None:
    cold = ColdMap()
    parts = (ColdPart("short", 0, 0, 5, 0, 100), ColdPart("long", 0, 0, 5, 0, 900))
    cold.apply(StretchBegun("s", 1, 0, 10))
    cold.apply(StretchCommitted("s", (ColdObject("s/0", 1, 0, parts),)))
    assert cold.expired([("short", 500)], 500) == []
    assert cold.expired([("short", 101), ("long", 900)], 0) == []
    assert cold.expired([("short", 101), ("long", 901)], 0) == ["s/0"]


def test_keys_of_two_attempts_at_one_stretch_never_meet() -> None:
    names = {stretch_prefix("c", "b", 5, epoch, unique) for epoch in (1, 2) for unique in ("x", "y")}
    assert len({object_key(name, number) for name in names for number in range(3)}) == 12
