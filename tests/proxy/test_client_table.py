"""Which clients count as alive."""

from __future__ import annotations

import pytest

from millstream.model.errors import ConsumeRefused
from millstream.proxy.clients import CLIENT_EXPIRY_S, MAX_STREAMS_PER_CLIENT, STREAM_GRACE_S, ClientTable


def test_a_client_without_a_word_for_two_minutes_is_gone_once() -> None:
    table = ClientTable()
    table.note_alive("a", 0.0)
    assert table.take_gone(CLIENT_EXPIRY_S - 0.1) == []
    assert table.take_gone(CLIENT_EXPIRY_S) == ["a"]
    assert table.take_gone(CLIENT_EXPIRY_S) == []


def test_a_word_in_time_keeps_a_client_alive() -> None:
    table = ClientTable()
    for now_s in range(0, 1000, 100):
        table.note_alive("a", float(now_s))
        assert table.take_gone(float(now_s)) == []


def test_a_broken_stream_shortens_the_life_of_a_silent_client() -> None:
    table = ClientTable()
    table.stream_opened("a", 0.0)
    table.stream_closed("a", 5.0)
    assert table.take_gone(5.0 + STREAM_GRACE_S - 0.1) == []
    assert table.take_gone(5.0 + STREAM_GRACE_S) == ["a"]


def test_a_client_that_lost_its_stream_lives_on_by_its_heartbeats() -> None:
    table = ClientTable()
    table.stream_opened("a", 0.0)
    table.stream_closed("a", 5.0)
    for now_s in range(10, 300, 10):
        table.note_alive("a", float(now_s))
        assert table.take_gone(now_s + 9.9) == []


def test_one_of_two_streams_may_end() -> None:
    table = ClientTable()
    table.stream_opened("a", 0.0)
    table.stream_opened("a", 0.0)
    table.stream_closed("a", 1.0)
    assert table.take_gone(1.0 + STREAM_GRACE_S) == []


def test_a_stream_that_comes_back_restores_the_long_expiry() -> None:
    table = ClientTable()
    table.stream_opened("a", 0.0)
    table.stream_closed("a", 1.0)
    table.stream_opened("a", 2.0)
    assert table.take_gone(2.0 + STREAM_GRACE_S) == []


def test_the_end_of_a_forgotten_clients_stream_makes_no_record() -> None:
    table = ClientTable()
    table.stream_opened("a", 0.0)
    table.remove("a")
    table.stream_closed("a", 1.0)
    assert len(table) == 0


def test_the_table_refuses_clients_over_its_limit_but_knows_the_old_ones() -> None:
    table = ClientTable(capacity=1)
    table.declare(table.note_alive("a", 0.0), "PRODUCER", frozenset())
    with pytest.raises(ConsumeRefused, match="limit of 1 clients") as refusal:
        table.note_alive("b", 0.0)
    assert refusal.value.name == "TOO_MANY_REQUESTS"
    assert table.note_alive("a", 1.0).last_seen_s == 1.0


def test_at_the_limit_a_client_that_never_said_what_it_is_makes_room_for_the_next_one() -> None:
    table = ClientTable(capacity=3)
    table.stream_opened("with-a-stream", 0.0)
    table.declare(table.note_alive("declared", 0.0), "PRODUCER", frozenset())
    for number in range(10):
        table.note_alive(f"stranger-{number}", 0.0)
    assert [record.client_id for record in table.all()] == ["with-a-stream", "declared", "stranger-9"]


def test_a_client_has_so_many_streams_and_no_more() -> None:
    table = ClientTable()
    for _ in range(MAX_STREAMS_PER_CLIENT):
        table.stream_opened("a", 0.0)
    with pytest.raises(ConsumeRefused, match="'a' has 16 telemetry streams") as refusal:
        table.stream_opened("a", 0.0)
    assert refusal.value.name == "TOO_MANY_REQUESTS"
    table.stream_closed("a", 1.0)
    table.stream_opened("a", 1.0)
