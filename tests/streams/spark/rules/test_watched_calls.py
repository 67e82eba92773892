"""Calls that end their process leave who they were; the others leave nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the extra streams")

from millstream.streams.rules.conditions import Op, Predicate, all_of, any_of, negate
from millstream.streams.rules.reference import evaluate
from millstream.streams.rules.rule import Rule, RuleSet
from millstream.streams.spark.rules.calls import (
    CallWatch,
    WatchedCall,
    dead_calls,
    guard_call,
    guilty,
    has_calls,
    with_guards,
)

ALLOWANCE_MS = 200


def call(name: str) -> Predicate:
    return Predicate("x", Op.CALL, (f"user_rules:{name}",))


def in_a_process(work: Callable[[], object]) -> int:
    """The exit code of a process that does the work, negative for a signal."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def watched(directory: Path, *names: str) -> Callable[[], None]:
    def work() -> None:
        with CallWatch(directory, ALLOWANCE_MS).watching():
            for name in names:
                guard_call("bad", f"user_rules:{name}")

    return work


def test_a_call_that_crashes_the_process_is_known_with_its_value_and_place(tmp_path: Path) -> None:
    assert in_a_process(watched(tmp_path, "crashes")) == -signal.SIGABRT
    (dead,) = dead_calls(tmp_path)
    assert dead.call == WatchedCall("user_rules:crashes", (), "bad")
    assert dead.is_certain
    assert not dead.took_too_long
    assert "in crashes" in dead.trace


def test_a_call_that_does_not_come_back_ends_its_process(tmp_path: Path) -> None:
    assert in_a_process(watched(tmp_path, "never_comes_back")) == 1
    (dead,) = dead_calls(tmp_path)
    assert dead.took_too_long
    assert "in never_comes_back" in dead.trace


def test_a_process_that_says_nothing_at_its_end_proves_nothing(tmp_path: Path) -> None:
    assert in_a_process(watched(tmp_path, "leaves")) == 3
    (dead,) = dead_calls(tmp_path)
    assert not dead.is_certain


def test_a_process_that_ends_outside_of_calls_accuses_nobody(tmp_path: Path) -> None:
    def killed() -> None:
        with CallWatch(tmp_path, ALLOWANCE_MS).watching():
            guard_call("4", "user_rules:is_even")
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_process(killed) == -signal.SIGKILL
    assert dead_calls(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_call_under_way_is_not_taken_for_a_dead_one(tmp_path: Path) -> None:
    def looks() -> None:
        with (watch := CallWatch(tmp_path, 60_000)).watching():
            found = watch.call(WatchedCall("f", (), "v"), lambda _value: dead_calls(tmp_path), "v")
        os._exit(0 if found == [] and len(list(tmp_path.iterdir())) == 2 else 1)

    assert in_a_process(looks) == 0


def test_what_a_function_raises_goes_through_and_the_time_is_over_with_it(tmp_path: Path) -> None:
    def raises() -> None:
        with CallWatch(tmp_path, ALLOWANCE_MS).watching(), pytest.raises(ValueError, match="not for me"):
            guard_call("bad", "user_rules:refuses")
        # Longer than a call may take: an alarm that is left over would end the process.
        threading.Event().wait(ALLOWANCE_MS * 2 / 1000)

    assert in_a_process(raises) == 0


def test_guards_change_no_answer() -> None:
    rule = Rule("r", "r", any_of(negate(call("is_even")), all_of(call("is_even"), Predicate("y", Op.IS_NULL))))
    (behind,) = with_guards(RuleSet(1, (rule,))).rules
    for event in ({"x": 1, "y": 2}, {"x": 2, "y": 2}, {"x": 2}, {}):
        assert evaluate(behind.condition, event.get) == evaluate(rule.condition, event.get)


def test_the_guilty_are_all_enabled_rules_that_make_the_call() -> None:
    one, two = (
        Rule("one", "", negate(call("crashes"))),
        Rule("two", "", all_of(Predicate("y", Op.IS_NULL), call("crashes"))),
    )
    off = Rule("off", "", call("crashes"), enabled=False)
    other = Rule("other", "", Predicate("x", Op.CALL, ("user_rules:crashes", 3)))
    rules = RuleSet(1, (one, two, off, other))
    assert has_calls(rules)
    assert guilty(rules, WatchedCall("user_rules:crashes", (), "v")) == [one, two]
    assert guilty(rules, WatchedCall("user_rules:crashes", (3,), "v")) == [other]
    assert not has_calls(RuleSet(1, (off,)))
