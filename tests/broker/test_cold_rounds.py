"""Work on cold messages goes on whatever a round fails with, and the log says of each defect once."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from crash.faulty_objects import FaultyObjects
from test_cold_tier import cold_bench, fill, read_all

from millstream.broker import cold_tier
from millstream.broker.cold_rounds import MAX_LINE_CHARACTERS, MAX_TRACE_LINES, repeat_rounds, trace_error
from millstream.model.backoff import Backoff
from millstream.model.clock import ManualClock
from millstream.model.errors import MillstreamError
from millstream.tiered.objects import ObjectStoreAway
from patience import eventually


class BrokenObjects(FaultyObjects):
    """Its puts fail as no store may, as often as `broken` says."""

    broken = 0

    def put(self, key: str, data: bytes, *, create_only: bool = False) -> None:
        if self.broken:
            self.broken -= 1
            raise ValueError(f"{key} is none of mine")
        super().put(key, data, create_only=create_only)


async def test_an_upload_goes_on_after_an_error_that_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cold_tier, "UPLOAD_INTERVAL_S", 0.01)
    monkeypatch.setattr(cold_tier, "_FAILURES", Backoff(0.01, 0.01))
    objects = BrokenObjects()
    async with cold_bench(tmp_path, objects, ManualClock()) as bench:
        objects.broken = 3
        names = await fill(bench, 50)
        cold = bench.broker.cold
        bench.broker.maintenance.store.flush()
        await eventually(lambda: cold.map.bounds("t", 0) == (0, 50))
        assert cold.report().errors == 3
        assert await read_all(bench) == names
        # Each attempt has a key of its own, and it is one defect all the same.
        [words] = [one.getMessage() for one in caplog.records if "cold tier failed" in one.getMessage()]
        assert "ValueError" in words
        assert "is none of mine" in words


async def rounds_of(*outcomes: Exception | bool) -> tuple[list[float], list[tuple[str, str]]]:
    """The waits before each round, and what was noted of rounds that failed: its error's name and words for the log."""
    left, waits, noted = [*outcomes], list[float](), list[tuple[str, str]]()

    async def act() -> bool:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def sleep(seconds: float) -> None:
        if not left:
            raise asyncio.CancelledError
        waits.append(seconds)

    with pytest.raises(asyncio.CancelledError):
        await repeat_rounds(
            act, 9.0, Backoff(1.0, 4.0, jitter=0.0), lambda error, words: noted.append((error.name, words)), sleep=sleep
        )
    return waits, noted


async def test_a_round_waits_longer_after_each_failure_and_as_usual_after_a_success() -> None:
    away = ObjectStoreAway("by plan")
    waits, _ = await rounds_of(away, ValueError("x"), away, away, True, False, away)
    assert waits == [9.0, 1.0, 2.0, 4.0, 4.0, 0.0, 9.0]


async def test_a_failure_is_said_once_until_it_is_another_one_or_a_round_succeeds() -> None:
    _, noted = await rounds_of(*(ValueError(str(n)) for n in range(3)), ObjectStoreAway("a"), ValueError("b"))
    assert [name for name, _ in noted] == [*["INTERNAL_ERROR"] * 3, "OBJECT_STORE_AWAY", "INTERNAL_ERROR"]
    assert [bool(words) for _, words in noted] == [True, False, False, True, True]
    _, noted = await rounds_of(ObjectStoreAway("a"), False, ObjectStoreAway("a"), ObjectStoreAway("a"))
    assert [bool(words) for _, words in noted] == [True, True, False]


def test_a_trace_has_bounded_lines_however_deep_and_long_the_error_is() -> None:
    # Two that call one another: a trace shortens what calls itself.
    def fall(depth: int) -> None:
        if not depth:
            raise ValueError("\n".join(["x" * 10_000] * 1000))
        go_down(depth - 1)

    def go_down(depth: int) -> None:
        fall(depth)

    with pytest.raises(ValueError, match="x") as caught:
        fall(200)
    lines = trace_error(caught.value).splitlines()
    assert len(lines) <= MAX_TRACE_LINES + 1
    assert "fall(depth)" in " ".join(lines)
    assert max(map(len, lines)) <= MAX_LINE_CHARACTERS + 100
    assert trace_error(MillstreamError("STORE_FAILED", "words", remedy="")) == "words [MS-4001]"


def test_a_trace_of_a_short_error_says_where_it_came_from(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="short") as caught:
        raise ValueError("short")
    logging.getLogger("test").error("%s", trace_error(caught.value))
    assert Path(__file__).name in caplog.text
