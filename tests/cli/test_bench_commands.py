"""`millstream bench` against a server: what it tells, and what it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from commands import Ran, run

from millstream.server.child import ServerProcess

pytestmark = pytest.mark.process


Command = Callable[..., Ran]
SHORT = ("--duration", "500ms", "--warm-up", "0s", "-o", "json")


def measured(done: Ran) -> dict[str, Any]:
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def left_behind(millstream: Command) -> list[str]:
    names = [item["topic"] for item in json.loads(millstream("topic", "list", "-o", "json").out)]
    names += [item["group"] for item in json.loads(millstream("group", "list", "-o", "json").out)]
    return [name for name in names if name.startswith("bench-")]


def test_a_run_tells_its_figures_and_clears_up(millstream: Command, server: ServerProcess) -> None:
    found = measured(millstream("bench", "produce", *SHORT))
    assert found["messages"] > 0
    assert found["latency_ms"]["p50"] <= found["latency_ms"]["p99"] <= found["latency_ms"]["max"]
    assert found["server_pid"] == server.pid
    assert "closed loop" in found["latency_of"]
    assert left_behind(millstream) == []


def test_what_is_sent_arrives_over_both_protocols(millstream: Command, server: ServerProcess) -> None:
    for option in ((), ("--grpc", server.addresses.grpc)):
        found = measured(millstream("bench", "e2e", *option, *SHORT))
        assert (found["missing"], found["duplicates"], found["errors"]) == (0, 0, 0)
        assert found["delivered"] > 0
        assert found["rate"] == 100
        assert "no coordinated omission" in found["latency_of"]
    assert left_behind(millstream) == []


def test_a_filled_topic_is_consumed_over_both_protocols(millstream: Command, server: ServerProcess) -> None:
    over_remoting = measured(millstream("bench", "consume", "--messages", "500", *SHORT))
    assert over_remoting["messages"] > 0
    long = ("--duration", "20s", "--warm-up", "0s", "-o", "json")
    over_grpc = measured(millstream("bench", "consume", "--messages", "500", "--grpc", server.addresses.grpc, *long))
    assert over_grpc["messages"] == 500
    assert left_behind(millstream) == []


def test_a_named_topic_keeps_what_was_sent(millstream: Command) -> None:
    millstream("topic", "create", "kept", "--queues", "1")
    found = measured(millstream("bench", "produce", "--topic", "kept", *SHORT))
    [queue] = json.loads(millstream("topic", "describe", "kept", "-o", "json").out)
    assert queue["messages"] >= found["messages"] > 0


def test_what_cannot_be_measured_is_refused_with_the_cause(millstream: Command) -> None:
    millstream("topic", "create", "void")
    empty = millstream("bench", "consume", "--topic", "void")
    assert (empty.code, "MS-1034" in empty.err) == (1, True)
    gone = millstream("bench", "produce", "--grpc", "127.0.0.1:1", *SHORT)
    assert (gone.code, gone.out, "127.0.0.1:1" in gone.err) == (3, "", True)
    assert left_behind(millstream) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("produce", "--duration", "0s"), "--duration: 0s is too short"),
        (("produce", "--warm-up", "x"), "--warm-up: 'x' is no length of time"),
        (("e2e", "--size", "8"), "--size"),
        (("produce", "--grpc", "nowhere"), "--grpc: 'nowhere' is no address"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(wrong: tuple[str, ...], said: str) -> None:
    refused = run("bench", *wrong)
    assert refused.code == 2
    assert said in refused.err
