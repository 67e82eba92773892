"""The checker of S5 finds every fault that is planted in a history, and S5 those planted in the broker."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest
from crash.catalogue import run_programme
from crash.fault_points import POINTS
from crash.feature_kills import judge
from crash.feature_load import DEAD_TOPIC, DELAYED, PLAIN, TRANSACTIONAL
from crash.history import Event, Kind
from crash.programme import Size

from crash import feature_kills

pytestmark = pytest.mark.kill


BODY = crc32(b"body")


def history(*lines: tuple[Kind, str], topic: str = PLAIN, life: str = "0", due_s: float = 0.0) -> list[Event]:
    """Events a second apart, each of a kind and a message (or, of a transaction's end, its resolution)."""
    return [
        Event(
            at_s=float(number),
            kind=kind,
            message=f"{life}.1" if kind in ("saving", "saved") else "m",
            checksum=BODY,
            queue=topic,
            lane=word if kind in ("end", "ended") else life,
            due_s=due_s,
        )
        for number, (kind, word) in enumerate(lines)
    ]


SENT: tuple[tuple[Kind, str], ...] = (("invoke", "m"), ("ok", "m"), ("delivered", "m"), ("acked", "m"))


def test_a_message_that_was_sent_delivered_and_kept_once_is_as_promised() -> None:
    assert judge(history(*SENT, ("saving", ""), ("saved", "")), {(PLAIN, "m"): 1}) == []


@pytest.mark.parametrize("copies", [0, 2])
def test_a_message_that_is_lost_or_twice_in_its_topic_is_found(copies: int) -> None:
    assert judge(history(*SENT), {(PLAIN, "m"): copies})


def test_a_send_without_an_answer_may_be_stored_or_not_but_not_twice() -> None:
    events = history(("invoke", "m"), ("delivered", "m"))
    assert [len(judge(events, {(PLAIN, "m"): copies})) for copies in (0, 1, 2)] == [0, 0, 1]


def test_a_message_that_was_recalled_and_comes_all_the_same_is_found() -> None:
    events = history(*SENT, ("recall", "m"), ("recalled", "m"), topic=DELAYED)
    assert judge(events, {(DELAYED, "m"): 1})
    assert not judge(events, {(DELAYED, "m"): 0})


def test_a_message_before_its_time_is_found() -> None:
    assert judge(history(*SENT, topic=DELAYED, due_s=2.5), {(DELAYED, "m"): 1})
    assert not judge(history(*SENT, topic=DELAYED, due_s=2.05), {(DELAYED, "m"): 1})


@pytest.mark.parametrize(("resolution", "legal"), [("commit", 1), ("rollback", 0)])
def test_a_transaction_that_ended_otherwise_than_it_was_told_is_found(resolution: str, legal: int) -> None:
    events = history(*SENT, ("end", resolution), ("ended", resolution), topic=TRANSACTIONAL)
    assert [not judge(events, {(TRANSACTIONAL, "m"): copies}) for copies in range(3)] == [
        copies == legal for copies in range(3)
    ]


def test_a_transaction_that_nobody_ended_is_not_delivered() -> None:
    assert judge(history(*SENT, topic=TRANSACTIONAL), {(TRANSACTIONAL, "m"): 1})


def test_an_acknowledged_message_that_comes_again_after_a_save_is_found_and_before_one_is_legal() -> None:
    again: tuple[Kind, str] = ("delivered", "m")
    assert judge(history(*SENT, ("saving", ""), ("saved", ""), again), {(PLAIN, "m"): 1})
    assert not judge(history(*SENT, ("saving", ""), again, ("saved", "")), {(PLAIN, "m"): 1})


def test_what_was_never_delivered_altered_or_never_sent_is_found() -> None:
    unseen = history(("invoke", "m"), ("ok", "m"))
    assert judge(unseen, {(PLAIN, "m"): 1})
    assert not judge(unseen, {(PLAIN, "m"): 1, (DEAD_TOPIC, "m"): 1})
    altered = Event(at_s=5.0, kind="delivered", message="m", checksum=BODY + 1)
    assert judge([*history(*SENT), altered], {(PLAIN, "m"): 1})
    assert judge([altered], {})


PLANTED_RUNS = 8
"""Runs over a planted bug at most; the first that finds it ends the test."""

_PLANTS = {
    "delay-delivered": """
from millstream.broker.delivery import delay, timers
def nameless(message):
    found = delay.delivered_message_of(message)
    found.properties.pop(delay.TIMER_OF)
    return found
timers.delivered_message_of = nameless
""",
    "ack-noted": """
from millstream.broker.queues.offsets import OffsetTable
OffsetTable._write = lambda table, keys, *, durable: None
""",
}
"""By the point at which they show: a delivery that does not name its timer, offsets that are not saved."""


@pytest.mark.parametrize("point", _PLANTS)
def test_s5_goes_red_for_a_bug_planted_in_the_broker(
    point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(_PLANTS[point])
    monkeypatch.setenv("PYTHONPATH", str(planted), prepend=":")
    often = POINTS[point]._replace(most_calls=20)
    monkeypatch.setattr(feature_kills, "POINTS", {point: often})
    # A kill shows the bug only where it meets a message on its way, which not every run's does.
    runs = (run_programme("S5", seed=seed, size=Size.CI, keep=tmp_path) for seed in range(7, 7 + PLANTED_RUNS))
    words = ("times in its topic", "was saved")
    assert any(word in failure for run in runs for failure in run.failures for word in words)
