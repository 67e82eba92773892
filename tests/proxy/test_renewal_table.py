"""The table of deliveries under renewal, by itself."""

from __future__ import annotations

from dataclasses import replace

from millstream.model.handles import ReceiptHandle
from millstream.proxy.renewal import MAX_TRIES, RENEW_AHEAD_MS, RENEW_FOR_MS, RenewalTable, TrackedDelivery

DUE_MS = RENEW_FOR_MS - RENEW_AHEAD_MS


def all_due(table: RenewalTable, now_ms: int) -> list[TrackedDelivery]:
    return list(iter(lambda: table.next_due(now_ms), None))


def entry(number: int = 0, *, client: str = "c", group: str = "g", at_ms: int = 0) -> TrackedDelivery:
    handle = ReceiptHandle(0, at_ms, RENEW_FOR_MS, 0, 0, "broker-a", 0, number, number)
    return TrackedDelivery(client, group, "orders", handle.encode(), handle, 1, at_ms)


def test_a_delivery_is_due_ten_seconds_before_it_becomes_visible() -> None:
    table = RenewalTable()
    table.add(entry())
    assert all_due(table, DUE_MS - 1) == []
    assert all_due(table, DUE_MS) == [entry()]


def test_a_due_delivery_is_not_due_again_until_its_renewal_is_known() -> None:
    table = RenewalTable()
    table.add(entry())
    (due,) = all_due(table, DUE_MS)
    assert all_due(table, DUE_MS + 5000) == []
    later = replace(due.handle, pop_time_ms=DUE_MS)
    table.note_renewal(due, later, DUE_MS)
    assert all_due(table, 2 * DUE_MS - 1) == []
    assert [found.handle for found in all_due(table, 2 * DUE_MS)] == [later]


def test_the_key_stays_the_text_that_the_client_received() -> None:
    table = RenewalTable()
    table.add(entry())
    (due,) = all_due(table, DUE_MS)
    later = replace(due.handle, pop_time_ms=DUE_MS)
    table.note_renewal(due, later, DUE_MS)
    found = table.find(("g", entry().original))
    assert found is not None
    assert found.handle == later


def test_a_removed_delivery_is_never_due_and_a_late_renewal_does_not_bring_it_back() -> None:
    table = RenewalTable()
    table.add(entry())
    (due,) = all_due(table, DUE_MS)
    assert table.remove(due.key) == due
    table.note_renewal(due, replace(due.handle, pop_time_ms=DUE_MS), DUE_MS)
    table.note_failure(due, DUE_MS)
    assert len(table) == 0
    assert all_due(table, 10 * DUE_MS) == []


def test_failed_renewals_are_tried_again_before_the_message_becomes_visible_and_then_let_go() -> None:
    table = RenewalTable()
    table.add(entry())
    now_ms, tries = DUE_MS, 0
    while len(table):
        for due in all_due(table, now_ms):
            tries += 1
            table.note_failure(due, now_ms)
        now_ms += 500
    assert tries == MAX_TRIES
    assert now_ms < RENEW_FOR_MS


def test_a_client_takes_only_its_own_deliveries_with_it() -> None:
    table = RenewalTable()
    for number, (client, group) in enumerate([("a", "g"), ("a", "h"), ("b", "g")]):
        table.add(entry(number, client=client, group=group))
    assert [found.group for found in table.remove_client("a", "h")] == ["h"]
    assert [found.client_id for found in table.remove_client("a")] == ["a"]
    assert table.remove_client("a") == []
    assert len(table) == 1


def test_the_same_handle_text_in_two_groups_is_two_deliveries() -> None:
    table = RenewalTable()
    table.add(entry(group="g"))
    table.add(entry(group="h"))
    table.remove(("g", entry().original))
    assert table.find(("h", entry().original)) is not None


def test_a_later_delivery_of_a_message_ends_the_renewal_of_the_earlier_one() -> None:
    table = RenewalTable()
    first, again = entry(), entry(at_ms=5)
    table.add(first)
    table.add(again)
    assert table.find(first.key) is None
    assert all_due(table, DUE_MS + 5) == [again]
    table.remove(again.key)
    table.add(first)
    assert table.find(first.key) == first


def test_room_ends_at_the_capacity() -> None:
    table = RenewalTable(capacity=33)
    table.add(entry())
    assert table.has_room(32)
    assert not table.has_room(33)


def test_the_plan_does_not_grow_with_deliveries_that_are_gone() -> None:
    table = RenewalTable()
    for number in range(20_000):
        one = entry(number)
        table.add(one)
        table.remove(one.key)
    assert len(table._schedule) < 2000
