"""`millstream group`: settings, lag and resets, as scripts use them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from commands import Ran

pytestmark = pytest.mark.process


Command = Callable[..., Ran]


def read_all(millstream: Command, topic: str, group: str, bodies: list[str]) -> None:
    """A topic of one queue whose messages the group has read."""
    assert millstream("topic", "create", topic, "--queues", "1").code == 0
    assert millstream("produce", topic, stdin="\n".join(bodies)).code == 0
    assert millstream("consume", topic, "-g", group, "--until-end").code == 0


def test_settings_are_created_shown_and_changed_one_by_one(millstream: Command) -> None:
    created = millstream(
        "group", "create", "tuned", "--backoff", "1s,5s,2m", "--first", "2026-01-02T03:04", "-o", "json"
    )
    assert created.json() == {
        "group": "tuned",
        "fifo": False,
        "max_attempts": 17,
        "backoff": "1s,5s,2m",
        "first": "2026-01-02T03:04:00Z",
        "enabled": True,
    }
    assert millstream("group", "create", "tuned").code == 1
    changed = millstream("group", "update", "tuned", "--backoff", "250ms..1h*3", "--disable", "-o", "json")
    described = millstream("group", "describe", "tuned", "-o", "json")
    assert changed.json() == {**created.json(), "backoff": "250ms..1h*3", "enabled": False}
    assert described.json() == {**changed.json(), "topics": [], "lag": 0, "in_flight": 0, "members": []}
    assert "switched off" in millstream("group", "update", "tuned", "-o", "table").out
    assert "members      none now" in millstream("group", "describe", "tuned", "-o", "table").out


def test_a_setting_that_means_nothing_is_refused_with_its_value(millstream: Command) -> None:
    for option, value, code, words in (
        ("--backoff", "soon", 2, "'soon' is no length of time"),
        ("--backoff", "5s..2h*nan", 2, "'nan' is no factor"),
        ("--backoff", "250ms", 2, "not whole seconds"),
        ("--backoff", "5s..1s", 1, "MS-2205"),
        ("--backoff", "13h", 1, "MS-2205"),
        ("--first", "soon", 2, "'soon' is no time"),
    ):
        refused = millstream("group", "create", "never", option, value)
        assert (refused.code, refused.out) == (code, ""), value
        assert words in refused.err, value
    assert millstream("group", "describe", "never").code == 1


def test_groups_under_which_the_command_line_looks_at_messages_are_not_listed(millstream: Command) -> None:
    read_all(millstream, "looked-at", "lister", ["a"])
    assert millstream("consume", "looked-at", "--until-end").out == "a\n"
    listed = {one["group"] for one in millstream("group", "list", "-o", "json").json()}
    assert "lister" in listed
    assert not listed & {"MILLSTREAM_CLIENT", "millstream-cli"}


def test_a_group_that_is_switched_off_is_refused(millstream: Command) -> None:
    read_all(millstream, "paused", "pauser", ["a"])
    assert millstream("group", "update", "pauser", "--disable").code == 0
    refused = millstream("consume", "paused", "-g", "pauser", "--wait", "1")
    assert (refused.code, "MS-2204" in refused.err) == (1, True)
    assert millstream("group", "update", "pauser", "--enable").code == 0


def test_lag_tells_what_is_not_consumed_in_each_queue(millstream: Command) -> None:
    read_all(millstream, "lagging", "lagger", ["a", "b"])
    millstream("produce", "lagging", "c")
    [row] = millstream("group", "lag", "lagger", "-o", "json").json()
    assert (row["topic"], row["queue"], row["committed"], row["end"]) == ("lagging", 0, 2, 3)
    assert (row["lag"], row["ready"], row["in_flight"]) == (1, 1, 0)
    assert row["oldest_s"] >= 0
    assert row["last_consumed"].endswith("Z")
    unknown = millstream("group", "lag", "nobody-ever")
    assert (unknown.code, "MS-2201" in unknown.err) == (1, True)


def test_a_reset_shows_its_plan_and_changes_nothing_unless_it_is_confirmed(millstream: Command) -> None:
    read_all(millstream, "resettable", "resetter", ["a", "b", "c"])
    asked = millstream("group", "reset", "resetter", "--topic", "resettable", "--to", "earliest")
    assert (asked.code, asked.out) == (2, "")
    assert "queue 0: from 3 to 0" in asked.err
    assert "--yes" in asked.err
    assert millstream("group", "lag", "resetter", "-o", "json").json()[0]["committed"] == 3

    done = millstream("group", "reset", "resetter", "--topic", "resettable", "--to", "1", "--yes", "-o", "json")
    assert done.json() == [
        {
            "topic": "resettable",
            "broker": "broker-a",
            "queue": 0,
            "before": 3,
            "after": 1,
            "messages": 2,
            "discarded": 0,
        }
    ]
    assert millstream("consume", "resettable", "-g", "resetter", "--until-end").out == "b\nc\n"


def test_a_reset_goes_to_an_end_or_a_time(millstream: Command) -> None:
    read_all(millstream, "timed", "timer", ["a", "b"])
    for to, expected in (("earliest", 0), ("latest", 2), ("1h", 0), ("2200-01-01", 2)):
        assert millstream("group", "reset", "timer", "--topic", "timed", "--to", to, "-y").code == 0
        assert millstream("group", "lag", "timer", "-o", "json").json()[0]["committed"] == expected, to


def test_a_reset_that_cannot_be_is_refused(millstream: Command) -> None:
    read_all(millstream, "fixed", "fixer", ["a"])
    reset = ("group", "reset", "fixer", "--topic")
    for arguments, code, words in (
        (("fixed",), 2, "--to"),
        (("fixed", "--to", "soon"), 2, "'soon' is no place"),
        (("fixed", "--to", "9", "--yes"), 1, "MS-3205"),
        (("fixed", "--to", "earliest", "--queue", "7"), 1, "MS-2104"),
        (("nowhere", "--to", "earliest"), 1, "MS-2101"),
    ):
        refused = millstream(*reset, *arguments)
        assert (refused.code, refused.out) == (code, ""), arguments
        assert words in refused.err, arguments
    assert millstream("group", "reset", "nobody-ever", "--topic", "fixed", "--to", "earliest").code == 1
