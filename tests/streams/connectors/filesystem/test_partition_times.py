"""When partitions are whole, as Flink's triggers say it."""

from __future__ import annotations

import datetime

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.connectors.filesystem.partition_times import CommitPolicy, PartitionClock, time_reader
from millstream.streams.functions.calendar import zone_of


def clock(pattern: str = "", formatter: str = "", zone: str = "UTC", *columns: str) -> PartitionClock:
    found = zone_of(zone)
    assert found is not None
    return PartitionClock(columns or ("dt", "hm"), pattern, time_reader(formatter), found, "__DEFAULT_PARTITION__")


def moment(*parts: int) -> int:
    return int(datetime.datetime(*parts, tzinfo=datetime.UTC).timestamp() * 1000)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("directory", "reading", "time_ms"),
    [
        ("dt=2026-01-02/hm=03%3A04", clock("$dt $hm:00"), moment(2026, 1, 2, 3, 4)),
        ("dt=2026-1-2/hm=3", clock("$dt $hm:5:6.5"), moment(2026, 1, 2, 3, 5, 6) + 500),
        ("dt=2026-01-02/hm=x", clock(), moment(2026, 1, 2)),
        ("dt=2026-01-02/hm=24", clock("$dt $hm:00:00"), moment(2026, 1, 3)),
        ("dt=20260102/hm=03", clock("$dt$hm", "yyyyMMddHH"), moment(2026, 1, 2, 3)),
        ("dt=02.01.2026/hm=", clock("", "dd.MM.yyyy"), moment(2026, 1, 2)),
        ("dt=2026-01-02T03/hm=", clock("", "yyyy-MM-dd'T'HH"), moment(2026, 1, 2, 3)),
        ("dt=2026-01-02/hm=03%3A04", clock("$dt $hm:00", zone="Asia/Tokyo"), moment(2026, 1, 1, 18, 4)),
        ("d=02/day=2026-01", clock("$day-$d", "", "UTC", "d", "day"), moment(2026, 1, 2)),
        ("dt=__DEFAULT_PARTITION__/hm=03%3A04", clock("$dt $hm:00"), None),
        ("dt=2026-13-02/hm=03%3A04", clock("$dt $hm:00"), None),
        ("dt=2026-01-02/hm=03%3A04", clock("$dt at $hm"), None),
    ],
)
def test_the_time_of_a_partition_is_read_from_its_directory(
    directory: str, reading: PartitionClock, time_ms: int | None
) -> None:
    assert reading.time_ms(directory) == time_ms


@pytest.mark.parametrize("formatter", ["yyyy-MM-dd EEE", "HH:mm", "yyyy yyyy", "yyyy 'T"])
def test_a_formatter_that_names_no_time_is_refused(formatter: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        time_reader(formatter)


def test_by_partition_time_the_watermark_passes_time_and_delay() -> None:
    policy = CommitPolicy("_SUCCESS", 60_000, clock("$dt $hm:00"))
    at = moment(2026, 1, 2, 3, 5)
    watermarks = (None, at - 1, at, at + 1)
    assert [policy.is_whole("dt=2026-01-02/hm=03%3A04", 0, 10**15, one) for one in watermarks] == [
        *(False, False, False, True)
    ]
    assert not policy.is_whole("dt=never/hm=", 0, 10**15, 10**15)


def test_by_processing_time_the_clock_passes_the_first_row_and_the_delay() -> None:
    policy = CommitPolicy("_SUCCESS", 100)
    assert [policy.is_whole("p=1", 1_000, now_ms, None) for now_ms in (1_000, 1_100, 1_101)] == [False, False, True]
    assert CommitPolicy("_SUCCESS", 0).is_whole("p=1", 1_000, 1_000, None)
