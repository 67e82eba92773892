"""Where a fresh job begins to read a topic."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.model.errors import NameRefused
from millstream.streams.connectors.rocketmq import source as topic_source
from millstream.streams.connectors.rocketmq.settings import SourceSettings
from millstream.streams.connectors.rocketmq.source import first_position
from millstream.streams.errors import JobError
from millstream.streams.jobs import outputs
from millstream.streams.jobs.settings import JobSettings
from millstream.streams.plan.tables import Table
from millstream.streams.spark.source.position import QueueSpan


class Log:
    """Two brokers with two queues each, of which offsets 10 to 100 are there."""

    def spans(self, topic: str) -> dict[str, QueueSpan]:
        return {f"{broker}/{queue}": QueueSpan(10, 100, 5) for broker in "ab" for queue in range(2)}

    def offset_at(self, topic: str, queue: str, timestamp_ms: int) -> int:
        return timestamp_ms

    def committed_offset(self, group: str, topic: str, queue: str) -> int | None:
        return {"a/0": 42, "a/1": 5, "b/0": 900}.get(queue) if group == "g" else None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [10, 10, 10, 10]),
        ({"scan.startup.mode": "latest-offset"}, [100, 100, 100, 100]),
        ({"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "33"}, [33, 33, 33, 33]),
        ({"scan.startup.mode": "group-offsets", "consumer.group": "g"}, [42, 10, 100, 10]),
        (
            {
                "scan.startup.mode": "specific-offsets",
                "scan.startup.specific-offsets": "queue:0,offset:20;broker:b,queue:0,offset:30;partition:1,offset:999",
            },
            [20, 100, 30, 100],
        ),
        (
            {
                "scan.startup.mode": "specific-offsets",
                "scan.startup.specific-offsets": "broker:b,queue:1,offset:30",
            },
            [10, 10, 10, 30],
        ),
    ],
)
def test_a_fresh_job_begins_where_its_table_says(options: dict[str, str], expected: list[int]) -> None:
    table = Table("t", (), {"connector": "rocketmq", "topic": "t", **options})
    settings = SourceSettings.of(table, JobSettings.of({}, "n:1"))
    position = first_position(Log(), settings, "t").position  # type: ignore[arg-type]  # what it asks of a topic log
    assert list(position.queues.values()) == expected


NEW = "The group new has no offsets in the topic t: the job begins at the"
WRITTEN = "('scan.startup.group-offsets.reset')."


@pytest.mark.parametrize(
    ("group", "reset", "expected", "notice"),
    [
        ("new", None, [10, 10, 10, 10], f"{NEW} earliest ones {WRITTEN}"),
        ("new", "earliest", [10, 10, 10, 10], f"{NEW} earliest ones {WRITTEN}"),
        ("new", "Latest", [100, 100, 100, 100], f"{NEW} latest ones {WRITTEN}"),
        (
            "g",
            "latest",
            [42, 10, 100, 100],
            f"The group g has no offsets in 1 of 4 queues (b/1) of the topic t: the job begins at the latest ones {WRITTEN}",
        ),
    ],
)
def test_a_group_without_offsets_begins_where_the_table_says_and_it_is_said(
    group: str, reset: str | None, expected: list[int], notice: str
) -> None:
    begun = first_position(Log(), settings_of(group, reset), "t")  # type: ignore[arg-type]  # what it asks of a log
    assert (list(begun.position.queues.values()), begun.notice) == (expected, notice)


def test_a_group_without_offsets_is_refused_where_the_table_wants_that() -> None:
    with pytest.raises(JobError, match="The group new has no offsets in the topic t") as refusal:
        first_position(Log(), settings_of("new", "none"), "t")  # type: ignore[arg-type]  # what it asks of a log
    assert (refusal.value.name, "scan.startup.group-offsets.reset" in str(refusal.value.remedy)) == (
        "GROUP_WITHOUT_OFFSETS",
        True,
    )


def test_a_group_without_offsets_is_no_matter_for_a_job_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closing(Log):
        def close(self) -> None:
            pass

    monkeypatch.setattr(topic_source, "open_log", lambda _nameserver, **_: Closing())
    source = topic_source.TopicSource(
        Table("t", (), {"connector": "rocketmq", "topic": "t"}), settings_of("new", "none")
    )
    assert list(source.end().queues.values()) == [100, 100, 100, 100]
    with pytest.raises(JobError, match="The group new has no offsets in the topic t"):
        source.beginning()


def settings_of(group: str, reset: str | None) -> SourceSettings:
    options = {"connector": "rocketmq", "topic": "t", "scan.startup.mode": "group-offsets", "consumer.group": group}
    if reset is not None:
        options["scan.startup.group-offsets.reset"] = reset
    return SourceSettings.of(Table("t", (), options), JobSettings.of({}, "n:1"))


def test_a_topic_that_is_not_there_is_refused_unless_the_job_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(Log):
        def spans(self, topic: str) -> dict[str, QueueSpan]:
            raise NameRefused("TOPIC_NOT_FOUND", "The topic t does not exist.")

        def close(self) -> None:
            pass

    monkeypatch.setattr(topic_source, "open_log", lambda _nameserver, **_: Missing())
    table = Table("t", (), {"connector": "rocketmq", "topic": "t"})
    with pytest.raises(NameRefused):
        outputs.open_source(table, JobSettings.of({}, "n:1"))
    waiting = outputs.open_source(table, JobSettings.of({"millstream.wait-for-topics": "true"}, "n:1"))
    assert (waiting.beginning().queues, waiting.beginning().name) == ({}, "t")
