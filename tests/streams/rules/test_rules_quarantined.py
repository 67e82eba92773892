"""A rule that raises or does not end is set apart with its evidence; the others lose nothing."""

from __future__ import annotations

import signal
import time

import pytest
from stages import plain_hits, rule_set, stage_hits

from millstream.streams.rules.conditions import Not, Op, Predicate, all_of, any_of
from millstream.streams.rules.stage.stage import RuleStage

EVENTS = [{"a": word, "n": number} for number, word in enumerate(["x", "bad", "y", "x"])]
GOOD = (Predicate("a", Op.IN, ("x",)), Predicate("n", Op.GREATER, (1,)), Not(Predicate("a", Op.CONTAINS, ("a",))))


def raises(value):
    if value == "bad":
        raise RuntimeError("no such word")
    return value == "x"


def loops(value):
    while value == "bad":
        pass
    return True


def sleeps(value):
    time.sleep(0.03)
    return value == "x"


def calling(name):
    return Predicate("a", Op.CALL, (f"test_rules_quarantined:{name}",))


def hits_of_good(events):
    return plain_hits(rule_set(*GOOD), events)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda predicate: predicate,
        Not,
        lambda predicate: all_of(GOOD[1], predicate),
        lambda predicate: any_of(GOOD[0], predicate),
        lambda predicate: all_of(Not(GOOD[0]), Not(predicate)),
    ],
)
def test_a_function_that_raises_takes_only_its_rules_with_it(wrap):
    events = [{"a": word, "n": 2} for word in ("x", "bad", "y", "x")] * 20
    stage = RuleStage(rule_set(*GOOD, wrap(calling("raises")), all_of(GOOD[1], calling("raises"))))
    for _ in range(2):
        assert stage_hits(stage, events) == hits_of_good(events)
    assert sorted(one.rule_id for one in stage.quarantined) == ["r3", "r4"]
    for fallen in stage.quarantined:
        assert "test_rules_quarantined:raises" in fallen.reason
        assert "RuntimeError: no such word" in fallen.reason
        assert fallen.evidence == '{"a":"bad","n":2}'


def test_a_function_is_asked_until_it_raises():
    stage = RuleStage(rule_set(calling("raises")))
    assert stage_hits(stage, EVENTS[:1]) == [(0, 0)]
    assert stage_hits(stage, EVENTS[1:]) == []
    assert stage_hits(stage, EVENTS[:1]) == []


def test_a_function_that_never_ends_is_stopped():
    stage = RuleStage(rule_set(*GOOD, calling("loops")), allowance_ms=100)
    assert stage_hits(stage, EVENTS) == hits_of_good(EVENTS)
    (fallen,) = stage.quarantined
    assert "takes longer than 100 ms" in fallen.reason
    assert stage_hits(stage, EVENTS) == hits_of_good(EVENTS)


def test_a_function_that_is_slow_over_a_batch_is_set_apart():
    events = [{"a": str(number), "n": 0} for number in range(10)]
    stage = RuleStage(rule_set(*GOOD, calling("sleeps")), allowance_ms=100)
    assert stage_hits(stage, events) == hits_of_good(events)
    assert [one.reason.endswith("over a batch") for one in stage.quarantined] == [True]


def test_an_expression_that_explodes_is_stopped():
    explodes = Predicate("a", Op.MATCHES, (r"^(?=(a+)+$)\1",))
    events = [*EVENTS, {"a": "a" * 60 + "!"}]
    stage = RuleStage(rule_set(*GOOD, explodes, all_of(GOOD[2], Not(explodes))), allowance_ms=100)
    assert stage_hits(stage, events) == hits_of_good(events)
    assert [one.rule_id for one in stage.quarantined] == ["r3", "r4"]


def test_an_expression_that_hyperscan_takes_cannot_explode():
    stage = RuleStage(rule_set(Predicate("a", Op.MATCHES, ("^(a+)+$",))), allowance_ms=100)
    assert stage_hits(stage, [{"a": "a" * 60 + "!"}, {"a": "aaa"}]) == [(1, 0)]
    assert stage.quarantined == ()


@pytest.mark.parametrize(
    "predicate",
    [
        calling("missing"),
        Predicate("a", Op.CALL, ("no.such.module:f",)),
        Predicate("a", Op.MATCHES, ("(",)),
        Predicate("a", Op.CIDR, ("300.0.0.0/8",)),
    ],
)
def test_a_rule_that_cannot_be_asked_is_set_apart_from_the_start(predicate):
    stage = RuleStage(rule_set(*GOOD, all_of(GOOD[0], predicate)))
    (fallen,) = stage.quarantined
    assert (fallen.rule_id, fallen.evidence) == ("r3", "")
    assert stage_hits(stage, EVENTS) == hits_of_good(EVENTS)


def test_the_evidence_is_cut():
    stage = RuleStage(rule_set(calling("raises")))
    stage_hits(stage, [{"more": "x" * 5_000, "a": "bad"}])
    assert len(stage.quarantined[0].evidence) == 2_048


def test_the_alarm_of_others_is_given_back():
    told = []
    before = signal.signal(signal.SIGALRM, lambda *_: told.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 100)
        stage_hits(RuleStage(rule_set(*GOOD)), EVENTS)
        assert 90 < signal.setitimer(signal.ITIMER_REAL, 0)[0] <= 100
        signal.raise_signal(signal.SIGALRM)
        assert told == [1]
    finally:
        signal.signal(signal.SIGALRM, before)
