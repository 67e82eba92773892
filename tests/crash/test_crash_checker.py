"""The checker finds every kind of planted fault, and nothing where there is none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from crash.checker import Verdict, check_history
from crash.history import Event, HistoryWriter, Kind, read_history


def _sound() -> list[Event]:
    """Ten messages in two lanes through a fault, each delivered once and in order; one outcome is unknown."""
    events = []
    for number in range(10):
        name, lane = f"m{number}", f"lane{number % 2}"
        at_s = float(number)
        events.append(Event(at_s=at_s, kind="invoke", message=name, checksum=number, lane=lane))
        outcome: Kind = "unknown" if number == 5 else "ok"
        events.append(
            Event(at_s=at_s + 0.2, kind=outcome, message=name, queue=lane, queue_offset=number // 2)
            if outcome == "ok"
            else Event(at_s=at_s + 0.2, kind=outcome, message=name)
        )
        if number != 5:
            events.append(Event(at_s=at_s + 20, kind="delivered", message=name, checksum=number))
            events.append(Event(at_s=at_s + 20.1, kind="acked", message=name))
    events.append(Event(at_s=5.1, kind="fault", message="kill"))
    events.append(Event(at_s=5.9, kind="healed"))
    return events


def _verdict(events: list[Event]) -> Verdict:
    return check_history(sorted(events, key=lambda event: event.at_s), stuck_after_s=5)


def _changed(events: list[Event], message: str, kind: Kind, /, **changes: object) -> list[Event]:
    found = [event for event in events if (event.message, event.kind) == (message, kind)]
    assert len(found) == 1
    return [msgspec.structs.replace(event, **changes) if event is found[0] else event for event in events]


def test_a_sound_history_has_nothing_broken_and_its_figures() -> None:
    verdict = _verdict(_sound())
    assert verdict.broken() == []
    assert (verdict.acknowledged, verdict.unknown, verdict.deliveries, verdict.duplicates) == (9, 1, 9, 0)
    assert verdict.recovery_s == [pytest.approx(1.1)]


def test_an_unknown_message_that_is_delivered_late_or_never_is_no_fault() -> None:
    late = Event(at_s=40, kind="delivered", message="m5", checksum=5)
    assert _verdict([*_sound(), late]).broken() == []


def _without(events: list[Event], message: str, *kinds: Kind) -> list[Event]:
    return [event for event in events if event.message != message or event.kind not in kinds]


def test_an_acknowledged_message_that_never_came_is_lost() -> None:
    events = _without(_sound(), "m3", "delivered", "acked")
    assert _verdict(events).lost == ["m3"]
    assert check_history(sorted(events, key=lambda event: event.at_s), is_drained=False).lost == []


def test_a_body_with_another_checksum_is_altered() -> None:
    assert _verdict(_changed(_sound(), "m4", "delivered", checksum=99)).altered == ["m4"]


def test_a_message_overtaken_in_its_lane_is_reordered_and_in_another_lane_not() -> None:
    assert _verdict(_changed(_sound(), "m2", "delivered", at_s=24.5)).reordered == ["m4 of lane0"]
    assert _verdict(_changed(_sound(), "m2", "delivered", at_s=23.5)).reordered == []


def test_messages_that_were_under_way_together_may_come_in_any_order() -> None:
    events = _changed(_sound(), "m2", "ok", at_s=4.5)
    assert _verdict(_changed(events, "m2", "delivered", at_s=24.5)).reordered == []


def test_what_nobody_sent_and_what_was_refused_are_phantoms() -> None:
    invented = Event(at_s=30, kind="delivered", message="other")
    assert _verdict([*_sound(), invented]).phantom == ["other"]
    assert _verdict(_changed(_sound(), "m6", "ok", kind="fail")).phantom == ["m6"]


def test_a_message_before_its_due_time_is_early() -> None:
    assert _verdict(_changed(_sound(), "m7", "invoke", due_s=27.5)).early == ["m7"]
    assert _verdict(_changed(_sound(), "m7", "invoke", due_s=27.05)).early == []


def test_a_second_delivery_is_counted_and_not_broken() -> None:
    verdict = _verdict([*_sound(), Event(at_s=50, kind="delivered", message="m1", checksum=1)])
    assert (verdict.deliveries, verdict.duplicates, verdict.broken()) == (10, 1, [])


def test_no_message_stored_long_after_the_healing_is_stuck() -> None:
    events = [event for event in _sound() if event.kind != "ok" or event.at_s < 6]
    assert _verdict(events).stuck == ["kill at 5.100 s"]


@pytest.mark.parametrize("queue_offset", [1, 2])
def test_an_offset_that_goes_back_or_is_given_twice_is_a_regression(queue_offset: int) -> None:
    events = _changed(_sound(), "m8", "ok", queue_offset=queue_offset)
    assert _verdict(events).offset_regressions == [f"m8 at {queue_offset} of lane0"]


def test_a_history_is_read_by_time_over_all_clients_and_a_torn_last_line_passed_over(tmp_path: Path) -> None:
    now_s = 1.0

    def clock() -> float:
        return now_s

    producer, consumer = (HistoryWriter(tmp_path, name, clock=clock) for name in ("producer", "consumer"))
    producer.write("invoke", "m1", checksum=7, lane="lane")
    now_s = 3.0
    consumer.write("delivered", "m1", checksum=7)
    now_s = 2.0
    producer.write("ok", "m1", queue="q", queue_offset=4)
    producer.close()
    consumer.close()
    with (tmp_path / "producer.jsonl").open("ab") as file:
        file.write(b'{"at_s":4.0,"ki')
    assert [(event.at_s, event.kind) for event in read_history(tmp_path)] == [
        (1.0, "invoke"),
        (2.0, "ok"),
        (3.0, "delivered"),
    ]
    assert read_history(tmp_path)[1].queue_offset == 4
