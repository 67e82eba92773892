"""Histories of registers: what a correct register shows is accepted, and each planted fault is found and named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from random import Random
from typing import Any

import pytest
from crash.history import Event, HistoryWriter, Kind, read_history
from crash.register_linearizability import MAX_OPERATIONS, RegisterValue, check_register
from hypothesis import given
from hypothesis import strategies as st
from modelled_histories import INITIAL, REGISTER, RegisterModel
from msgspec.structs import replace

SEEDS = st.integers(0, 2**32)


def _broken(events: Sequence[Event]) -> list[str]:
    return check_register(events, REGISTER, INITIAL).broken()


@given(SEEDS, st.integers(0, 200))
def test_what_a_correct_register_shows_is_accepted(seed: int, operations: int) -> None:
    assert _broken(RegisterModel(Random(seed), operations).events) == []


def _find(events: Sequence[Event], message: str, kind: Kind) -> Event:
    (found,) = (event for event in events if (event.message, event.kind) == (message, kind))
    return found


def _edit(events: Sequence[Event], message: str, kind: Kind, /, **fields: Any) -> list[Event]:
    found = _find(events, message, kind)
    return [replace(event, **fields) if event is found else event for event in events]


def _lose_a_change(events: list[Event]) -> list[Event]:
    """Both of two alterations that expect one epoch are answered as made."""
    first = _find(events, "quiet-1", "changed")
    events = _edit(events, "quiet-2", "change", epoch=first.epoch - 1)
    return _edit(events, "quiet-2", "changed", epoch=first.epoch)


def _follow_from_what_is_over(events: list[Event]) -> list[Event]:
    """An alteration is made although another one came between: it expects what was two changes ago."""
    return _edit(events, "quiet-2", "change", epoch=_find(events, "quiet-1", "change").epoch)


def _read_what_is_over(events: list[Event]) -> list[Event]:
    before = _find(events, "quiet-read-1", "read")
    return _edit(events, "quiet-read-2", "read", epoch=before.epoch, value=before.value)


def _read_what_comes(events: list[Event]) -> list[Event]:
    later = _find(events, "quiet-read-2", "read")
    return _edit(events, "quiet-read-1", "read", epoch=later.epoch, value=later.value)


MUTATIONS = [
    (_lose_a_change, "lost_changes"),
    (_follow_from_what_is_over, "lost_changes"),
    (_read_what_is_over, "stale_reads"),
    (_read_what_comes, "unexplained_reads"),
]


@pytest.mark.parametrize(("plant", "kind"), MUTATIONS)
@given(seed=SEEDS, operations=st.integers(0, 60))
def test_each_planted_fault_is_refused_and_named(
    plant: Callable[[list[Event]], list[Event]], kind: str, seed: int, operations: int
) -> None:
    verdict = check_register(plant(RegisterModel(Random(seed), operations).events), REGISTER, INITIAL)
    assert getattr(verdict, kind)
    assert any(line.startswith(kind.replace("_", " ")) for line in verdict.broken())


def _event(at_s: float, kind: Kind, message: str, epoch: int = -1, value: str = "") -> Event:
    return Event(at_s=at_s, kind=kind, message=message, register=REGISTER, epoch=epoch, value=value)


def test_two_changes_to_one_epoch_are_both_named() -> None:
    verdict = check_register(_lose_a_change(RegisterModel(Random(1), 0).events), REGISTER, INITIAL)
    assert verdict.lost_changes == ["quiet-1 and quiet-2 both made epoch 3"]


def test_a_long_history_with_a_fault_at_its_end_is_refused() -> None:
    events = _read_what_is_over(RegisterModel(Random(7), 5_000).events)
    assert [words.split()[0] for words in check_register(events, REGISTER, INITIAL).stale_reads] == ["quiet-read-2"]


def test_a_value_that_nobody_wrote_is_unexplained() -> None:
    events = _edit(RegisterModel(Random(1), 0).events, "quiet-read-2", "read", value="nobody's")
    verdict = check_register(events, REGISTER, INITIAL)
    assert [words.split()[0] for words in verdict.unexplained_reads] == ["quiet-read-2"]


def test_a_fenced_alteration_that_expected_what_was_there_is_a_wrong_refusal() -> None:
    fenced = [_event(1, "change", "wrong", INITIAL.epoch, "new"), _event(2, "fenced", "wrong")]
    assert check_register(fenced, REGISTER, INITIAL).wrong_refusals
    assert _broken([_event(0, "change", "election"), *fenced]) == []
    unmoved = [_event(3, "reading", "after"), _event(4, "read", "after", *INITIAL)]
    assert _broken([_event(0, "change", "election"), *fenced, *unmoved])


def test_an_election_without_an_answer_explains_one_value_and_no_second_one() -> None:
    events = [
        _event(1, "change", "election"),
        _event(2, "reading", "first-read"),
        _event(3, "read", "first-read", 3, "elected"),
    ]
    assert _broken(events) == []
    events += [_event(4, "reading", "second-read"), _event(5, "read", "second-read", 4, "more")]
    assert check_register(events, REGISTER, INITIAL).unexplained_reads


def test_one_election_without_an_answer_explains_a_refusal_and_what_is_read_behind_it() -> None:
    events = [
        _event(1, "change", "election"),
        _event(2, "change", "late", INITIAL.epoch, "new"),
        _event(3, "fenced", "late"),
        _event(4, "reading", "after"),
        _event(5, "read", "after", 5, "elected"),
    ]
    assert _broken(events) == []


def test_an_alteration_without_an_answer_may_be_made_later_or_never() -> None:
    asked = _event(1, "change", "asked", INITIAL.epoch, "new")
    old = [_event(2, "reading", "old"), _event(3, "read", "old", *INITIAL)]
    new = [_event(4, "reading", "new"), _event(5, "read", "new", INITIAL.epoch + 1, "new")]
    assert _broken([asked, *old]) == _broken([asked, *new]) == _broken([asked, *old, *new]) == []
    too_early = _event(6, "change", "asked", INITIAL.epoch, "new")
    assert check_register([*old, *new, too_early], REGISTER, INITIAL).unexplained_reads


def test_another_register_is_passed_over() -> None:
    events = RegisterModel(Random(2), 30).events
    strange = [replace(event, register="other", message=f"other-{event.message}") for event in events]
    assert _broken([*events, *strange[len(strange) // 2 :]]) == []


def test_too_many_operations_are_refused() -> None:
    events = [_event(number, "change", str(number)) for number in range(MAX_OPERATIONS + 1)]
    with pytest.raises(ValueError, match="10001 operations of broker-a are more than 10000"):
        _broken(events)


def test_a_register_is_checked_from_the_files_of_its_clients(tmp_path: Any) -> None:
    writer = HistoryWriter(tmp_path, "client")
    writer.write("change", "c", register=REGISTER, epoch=1, value="new")
    writer.write("changed", "c", register=REGISTER, epoch=2, value="new")
    writer.write("reading", "r", register=REGISTER)
    writer.write("read", "r", register=REGISTER, epoch=1, value="first")
    writer.close()
    assert len(check_register(read_history(tmp_path), REGISTER, INITIAL).stale_reads) == 1


def _tiny_history(choose: Random) -> list[Event]:
    """Up to five operations at random times, with epochs that may or may not fit."""
    times = iter(choose.sample(range(100), 12))
    events: list[Event] = []
    for name in map(str, range(choose.randint(1, 5))):
        called_s, answered_s = sorted((next(times), next(times)))
        kind = choose.choice(("read", "alter", "alter", "fenced", "elect", "unknown"))
        epoch = choose.randint(1, 3)
        if kind == "read":
            events.append(_event(called_s, "reading", name))
            events.append(_event(answered_s, "read", name, epoch, _value(epoch)))
            continue
        events.append(_event(called_s, "change", name, -1 if kind == "elect" else epoch, _value(epoch + 1)))
        if kind == "fenced":
            events.append(_event(answered_s, "fenced", name))
        elif kind != "unknown":
            events.append(_event(answered_s, "changed", name, epoch + 1, _value(epoch + 1)))
    return events


def _value(epoch: int) -> str:
    return INITIAL.value if epoch == INITIAL.epoch else f"v{epoch}"


def _fits(order: Sequence[Event], answers: dict[str, Event], skipped: set[str]) -> bool:
    """Whether a register that does one after the other answers as was answered, in an order that real time allows."""
    state, latest_call_s = INITIAL, float("-inf")
    for called in order:
        answer = answers.get(called.message)
        if called.message in skipped:
            continue
        latest_call_s = max(latest_call_s, called.at_s)
        if answer is not None and answer.at_s < latest_call_s:
            return False
        if called.kind == "reading":
            if answer is None or (answer.epoch, answer.value) != state:
                return False
        elif answer is not None and answer.kind == "fenced":
            if called.epoch == state.epoch:
                return False
        else:
            after = RegisterValue(answer.epoch if answer else called.epoch + 1, called.value)
            if called.epoch not in (-1, state.epoch) or after.epoch <= state.epoch:
                return False
            state = after
    return True


def _has_order(events: Sequence[Event]) -> bool:
    """Tries all orders, with each subset of what has no answer left out."""
    answers = {event.message: event for event in events if event.kind in ("read", "changed", "fenced")}
    calls = [event for event in events if event.kind in ("reading", "change")]
    open_names = [event.message for event in calls if event.message not in answers]
    subsets = [{name for bit, name in enumerate(open_names) if mask >> bit & 1} for mask in range(1 << len(open_names))]
    return any(_fits(order, answers, skipped) for skipped in subsets for order in permutations(calls))


@given(SEEDS)
def test_the_verdict_is_that_of_trying_all_orders(seed: int) -> None:
    for number in range(20):
        events = _tiny_history(Random(seed + number))
        assert (_broken(events) == []) == _has_order(events)
