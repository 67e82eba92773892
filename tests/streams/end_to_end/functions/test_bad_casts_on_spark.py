"""Rows in which a CAST fails, on the way that a job asks for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from pyspark.sql import SparkSession
from running_jobs import Topic, bounded_run

from millstream.client.blocking import BlockingClient
from millstream.streams.errors import JobError

pytestmark = pytest.mark.spark

ROWS = [(0, b'{"word":"12","small":1}'), (0, b'{"word":"x","small":2}'), (0, b'{"word":null,"small":3}')]
SCRIPT = """
SET 'execution.runtime-mode' = 'batch';
SET 'millstream.bad-cast' = '{mode}';
CREATE TABLE t (word STRING, small INT) WITH ('connector' = 'rocketmq', 'topic' = 't');
SELECT small, CAST(word AS INT) AS n FROM t
"""
TopicOf = Callable[..., AbstractContextManager[Topic]]


def test_a_bad_cast_is_null_unless_the_job_asks_for_more(spark: SparkSession, topic: TopicOf) -> None:
    with topic(ROWS) as running:
        result = bounded_run(spark, running, SCRIPT.format(mode="null"), name="null-casts")
    assert result.rows["result"] == [(1, 12), (2, None), (3, None)]


def test_a_row_with_a_bad_cast_goes_to_the_dead_letters_with_the_reason(spark: SparkSession, topic: TopicOf) -> None:
    with topic(ROWS) as running:
        result = bounded_run(spark, running, SCRIPT.format(mode="dead-letter"), name="letter-casts")
        with BlockingClient(running.nameserver) as client:
            messages = [
                message
                for item in client.queue_ranges("t_dead_letter")
                for batch in client.read(item.queue, 0, item.range.max_offset)
                for message in batch.messages()
            ]
    assert result.rows["result"] == [(1, 12), (3, None)]
    (message,) = messages
    assert message.body == b'{"word":"x","small":2}'
    told = dict(message.user_properties)
    assert told.pop("sql_origin")
    assert told == {"reason": "CAST(word AS INT) failed", "source_topic": "t"}


def test_a_strict_job_ends_at_a_bad_cast_and_says_which(spark: SparkSession, topic: TopicOf) -> None:
    with topic(ROWS) as running, pytest.raises(JobError, match=r"CAST\(word AS INT\) failed"):
        bounded_run(spark, running, SCRIPT.format(mode="fail"), name="strict-casts")
