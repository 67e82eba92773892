"""Which errors a job outlives, and how long it waits."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.model import errors
from millstream.model.errors import ConnectionFailed, MessageRefused, NameRefused, TimedOut, Unreachable
from millstream.streams.errors import JobError
from millstream.streams.jobs.restarts import Restarts, RestartSettings, first_cause, may_pass
from millstream.streams.jobs.settings import JobSettings

CONNECTION_ERRORS = {
    name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, ConnectionFailed)
}
IN_A_WORKER = """[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):
  File "x.py", line 3, in read
millstream.model.errors.{error}
"""


def no_jitter() -> float:
    """Takes nothing off a wait."""
    return 0.0


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("Nothing answers at 127.0.0.1:9876."),
        TimedOut("No answer came."),
        NameRefused("TOPIC_NOT_FOUND", "The topic t does not exist."),
        RuntimeError(IN_A_WORKER.format(error="Unreachable: Nothing answers at 127.0.0.1:9876.")),
        RuntimeError(IN_A_WORKER.format(error="NameRefused: The topic t does not exist. [MS-2101]")),
        JobError("DATABASE_UNREACHABLE", "The table t cannot be written: postgresql://h:5432/d: connection refused"),
        RuntimeError(IN_A_WORKER.format(error="JobError: The table t cannot be read: gone [MS-6201]")),
        RuntimeError("sqlite3.OperationalError: unable to open database file"),
        RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back."),
        RuntimeError(
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): java.io.EOFException"
        ),
        RuntimeError("Lost task 0.3 in stage 7.0 (127.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited)"),
        RuntimeError("ResultStage 7 has failed the maximum allowable number of times: 1. FetchFailed(null, 3, 0, 1)"),
        RuntimeError("Broken pipe"),
        RuntimeError(
            "[STREAM_FAILED] Query [id = 1] terminated with exception: java.net.SocketException: Connection reset"
        ),
        RuntimeError("java.io.EOFException"),
    ],
)
def test_what_was_not_there_just_now_may_pass(error: BaseException) -> None:
    assert may_pass(error)


class CausedError(RuntimeError):
    """As Spark's errors are in Python: the cause is no part of the words."""

    def __init__(self, words: str, cause: BaseException) -> None:
        super().__init__(words)
        self._cause = cause


def test_a_cause_without_a_message_that_the_words_leave_out_is_looked_at() -> None:
    words = "[STREAM_FAILED] Query [id = 1] terminated with exception:  SQLSTATE: XXKST (no cause message)"
    gone = CausedError(words, RuntimeError("java.io.EOFException"))
    assert may_pass(gone)
    assert first_cause(gone) == "EOFException without a message"
    assert not may_pass(CausedError(words, RuntimeError("java.lang.NullPointerException")))


@pytest.mark.parametrize("kind", sorted(CONNECTION_ERRORS))
def test_every_error_of_a_connection_may_pass_also_in_the_words_of_a_worker(kind: str) -> None:
    assert may_pass(RuntimeError(IN_A_WORKER.format(error=f"{kind}: 127.0.0.1:10911 cannot be reached. [MS-9999]")))
    assert may_pass(JobError("JOB_FAILED", f"The job failed: {kind}: 127.0.0.1:10911 cannot be reached."))


@pytest.mark.parametrize(
    "error",
    [
        JobError("DATABASE_REFUSED", "The table t cannot be written: no such user"),
        JobError("SINK_FAILED", "A row cannot be written as CSV."),
        MessageRefused("BODY_TOO_LARGE", "The message has 5 MiB."),
        RuntimeError(IN_A_WORKER.format(error="MessageRefused: a key has a separator [MS-3005]")),
        RuntimeError("ZeroDivisionError: division by zero"),
    ],
)
def test_what_would_fail_again_does_not(error: BaseException) -> None:
    assert not may_pass(error)


def test_the_waits_double_up_to_the_longest_and_begin_anew_after_a_micro_batch() -> None:
    restarts = Restarts(RestartSettings(first_ms=100, longest_ms=500), no_jitter)
    assert [restarts.next_s(TimedOut("x")) for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    restarts.reset()
    assert restarts.next_s(TimedOut("x")) == 0.1


def test_attempts_end_and_none_means_never() -> None:
    of = {
        "restart-strategy.exponential-delay.attempts": "2",
        "restart-strategy.exponential-delay.initial-backoff": "5 ms",
    }
    restarts = Restarts(JobSettings.of(of, "n").restarts, no_jitter)
    assert [restarts.next_s(TimedOut("x")) for _ in range(3)] == [0.005, 0.01, None]
    never = Restarts(JobSettings.of({"restart-strategy.type": "none"}, "n").restarts)
    assert never.next_s(TimedOut("x")) is None


def test_a_start_without_what_led_to_the_error_counts_for_nothing() -> None:
    restarts = Restarts(RestartSettings(first_ms=10, attempts=1), no_jitter)
    lasting = ValueError("no")
    assert [restarts.next_s(lasting, mended=True) for _ in range(3)] == [0.01, 0.01, 0.01]
    assert restarts.next_s(lasting) is None


def test_a_job_that_is_never_started_again_is_not_even_then() -> None:
    assert Restarts(RestartSettings(attempts=0)).next_s(ValueError("no"), mended=True) is None
