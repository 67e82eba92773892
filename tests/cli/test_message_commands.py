"""`millstream message` and the ways in which `consume` shows messages."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from commands import Ran

pytestmark = pytest.mark.process


Command = Callable[..., Ran]


def test_a_message_is_shown_and_sent_again_with_all_that_it_had(millstream: Command) -> None:
    millstream("topic", "create", "life")
    sent = millstream("produce", "life", "body", "--tag", "t", "--key", "k", "-p", "region=eu", "-o", "json").json()
    shown = millstream("message", "get", sent["message_id"])
    assert shown.out.startswith(f"id          {sent['message_id']}\n")
    assert shown.out.endswith("\n\nbody\n")

    copy = millstream("message", "resend", "k", "-o", "json").json()
    assert copy["copy_of"] == sent["message_id"] != copy["message_id"]
    new = json.loads(millstream("message", "get", copy["message_id"], "--topic", "life", "-o", "json").out)
    assert (new["body"], new["tag"], new["keys"], new["properties"]) == ("body", "t", ["k"], {"region": "eu"})

    several = millstream("message", "resend", "k")
    assert (several.code, "MS-1032" in several.err) == (1, True)
    nothing = millstream("message", "get", "k9")
    assert (nothing.code, nothing.out, "MS-1031" in nothing.err) == (1, "", True)


def test_a_copy_goes_to_another_topic_also_to_one_of_delayed_messages(millstream: Command) -> None:
    millstream("topic", "create", "from-here")
    millstream("topic", "create", "to-later", "--type", "delay")
    millstream("produce", "from-here", "body", "--key", "moved")
    copy = millstream("message", "resend", "moved", "--topic", "from-here", "--to", "to-later", "-o", "json").json()
    [read] = millstream("consume", "to-later", "--until-end", "--format", "{message_id} {body}").out.splitlines()
    assert read == f"{copy['message_id']} body"


def test_consume_begins_at_an_offset_or_at_a_time(millstream: Command) -> None:
    millstream("topic", "create", "placed", "--queues", "1")
    millstream("produce", "placed", "a", "b", "c")
    assert millstream("consume", "placed", "--from", "1", "--until-end").out.splitlines() == ["b", "c"]
    assert millstream("consume", "placed", "--from", "1h", "--until-end").out.splitlines() == ["a", "b", "c"]
    assert millstream("consume", "placed", "--from", "2999-01-01", "--until-end").out == ""
    assert millstream("consume", "placed", "--from", "9", "--until-end").out == ""


def test_details_show_keys_and_properties(millstream: Command) -> None:
    millstream("topic", "create", "detailed")
    millstream("produce", "detailed", "x", "--key", "k1", "-p", "region=eu")
    shown = millstream("consume", "detailed", "--until-end", "--details").out
    assert "keys        k1\n" in shown
    assert "property    region=eu\n" in shown


def test_places_and_formats_that_cannot_be_read_are_usage_errors(millstream: Command) -> None:
    for wrong, said in (
        (("--from", "soon"), "'soon' is no place"),
        (("--format", "{bad}"), "{bad} is no field"),
        (("--format", "{body}", "--details"), "not several"),
    ):
        refused = millstream("consume", "anything", *wrong)
        assert refused.code == 2
        assert said in refused.err
