"""Producers by group: who is asked, who is told of, who is gone."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from access_samples import sample_guard
from millstream.broker.remoting import producers
from millstream.broker.remoting.clients import MEMBER_LIMIT_S
from millstream.broker.remoting.producers import ProducerRegistry
from millstream.model.errors import AccessRefused, ConsumeRefused
from millstream.model.message import Address
from millstream.security.resource import ResourcePattern
from millstream.transport.remoting_connection import Connection


class Line:
    """Stands for a connection."""

    def __init__(self, port: int = 1) -> None:
        self.peer = Address("10.0.0.1", port)
        self.is_open = True


def line_of(connection: Connection | None) -> Line:
    return cast("Line", connection)


def hear(
    registry: ProducerRegistry, client_id: str, line: Line, group: str = "p", now_s: float = 0.0, user: str = ""
) -> None:
    registry.hear(client_id, group, line, now_s, ("JAVA", 401), user)  # type: ignore[arg-type]


def test_the_producers_of_a_group_are_asked_in_turn_and_closed_ones_never() -> None:
    registry, first, second = ProducerRegistry(), Line(1), Line(2)
    assert registry.connection_of_producer_group("p", "t") is None
    hear(registry, "c1", first)
    hear(registry, "c2", second)
    asked = [line_of(registry.connection_of_producer_group("p", "t")) for _ in range(4)]
    assert asked == [first, second, first, second]
    first.is_open = False
    assert line_of(registry.connection_of_producer_group("p", "t")) is second
    assert registry.connection_of_producer_group("other", "t") is None


def test_only_who_may_send_to_the_topic_is_asked_about_its_messages(tmp_path: Path) -> None:
    guard = sample_guard(tmp_path)
    registry, ann, bob = ProducerRegistry(guard), Line(1), Line(2)
    hear(registry, "c1", ann, user="ann")
    hear(registry, "c2", bob, user="bob")
    assert [line_of(registry.connection_of_producer_group("p", "orders")) for _ in range(3)] == [ann] * 3
    assert registry.connection_of_producer_group("p", "others") is None
    guard.book.delete_entries("ann", pattern=ResourcePattern.parse("Topic:orders"))
    assert registry.connection_of_producer_group("p", "orders") is None
    guard.book.delete_user("ann")
    assert registry.connection_of_producer_group("p", "orders") is None


def test_nobody_takes_the_place_of_another_users_client_or_ends_it(tmp_path: Path) -> None:
    registry, ann, bob = ProducerRegistry(sample_guard(tmp_path)), Line(1), Line(2)
    hear(registry, "c1", ann, user="ann")
    for group in ("p", "a-group-of-bobs"):
        with pytest.raises(AccessRefused):
            hear(registry, "c1", bob, group, user="bob")
    registry.leave("c1", "p", "bob")
    assert line_of(registry.connection_of_producer_group("p", "orders")) is ann
    ann.is_open = False
    hear(registry, "c1", bob, user="bob")
    registry.leave("c1", "p", "bob")
    assert registry.connections("p") == []


def test_producers_go_with_their_connection_by_their_own_word_and_by_silence() -> None:
    registry, first, second = ProducerRegistry(), Line(1), Line(2)
    for client_id, line in (("c1", first), ("c2", second), ("c3", second), ("c4", second)):
        hear(registry, client_id, line)
    registry.connection_closed(first)  # type: ignore[arg-type]
    registry.leave("c2", "p")
    registry.leave("c2", "p")
    hear(registry, "c4", second, now_s=60.0)
    registry.expire(MEMBER_LIMIT_S + 1)
    assert [member.client_id for member in registry.connections("p")] == ["c4"]


def test_a_producer_that_came_back_over_another_connection_outlives_the_old_one() -> None:
    registry, old, new = ProducerRegistry(), Line(1), Line(2)
    hear(registry, "c1", old)
    hear(registry, "c1", new)
    registry.connection_closed(old)  # type: ignore[arg-type]
    [(group, told, _)] = registry.all()
    assert (group, told.client_addr, told.language, told.version) == ("p", "10.0.0.1:2", "JAVA", 401)


def test_more_producers_than_the_limit_and_endless_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "MAX_PRODUCERS", 2)
    registry, line = ProducerRegistry(), Line()
    hear(registry, "c1", line)
    hear(registry, "c2", line)
    with pytest.raises(ConsumeRefused, match="2 producers"):
        hear(registry, "c3", line)
    registry.leave("c1", "p")
    hear(registry, "c3", line)
    with pytest.raises(ConsumeRefused, match="1000 characters"):
        hear(registry, "c3", line, group="p" * 1000)


def test_a_client_is_found_by_its_id_as_long_as_it_is_a_producer_of_any_group() -> None:
    registry, line = ProducerRegistry(), Line(1)
    assert registry.connection_of_client("c1") is None
    hear(registry, "c1", line, group="p")
    hear(registry, "c1", line, group="q")
    registry.leave("c1", "p")
    assert line_of(registry.connection_of_client("c1")) is line
    line.is_open = False
    assert registry.connection_of_client("c1") is None
    line.is_open = True
    registry.leave("c1", "q")
    assert registry.connection_of_client("c1") is None
