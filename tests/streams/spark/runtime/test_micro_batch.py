"""When a micro-batch began, as workers read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.streams.spark.runtime import micro_batch as micro_batches
from millstream.streams.spark.runtime.micro_batch import LoggedTime


def test_the_time_of_a_micro_batch_is_the_one_in_the_log_of_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_us = LoggedTime(str(tmp_path))
    # The last one is another job's, in whose checkpoint's place its own has come.
    for number, began_ms in ((0, 1_700_000_000_123), (7, 1_700_000_009_456), (0, 1_700_000_020_789)):
        batch = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": began_ms, "conf": {}})
        (tmp_path / str(number)).write_text(f'v1\n{batch}\n{{"queue": 1}}')
        monkeypatch.setattr(micro_batches, "micro_batch", lambda number=number: number)
        assert now_us() == began_ms * 1000
