"""Where RocketMQ's consumers are sent to read what is old."""

from __future__ import annotations

from millstream.server.replicas.read_advice import MASTER_ID, ReadAdvice

ADVICE = ReadAdvice(1000, 40)


def test_a_reader_near_the_end_reads_from_the_master() -> None:
    assert ADVICE.choose({2, 3}, 0, 400) == MASTER_ID


def test_a_reader_farther_behind_than_the_share_of_memory_reads_from_a_replica() -> None:
    assert ADVICE.choose({2}, 0, 401) == 2


def test_queues_are_spread_over_the_replicas_by_their_ids() -> None:
    assert [ADVICE.choose({7, 3}, number, 401) for number in range(4)] == [3, 7, 3, 7]


def test_without_replicas_everybody_reads_from_the_master() -> None:
    assert ADVICE.choose(set(), 0, 10_000) == MASTER_ID
