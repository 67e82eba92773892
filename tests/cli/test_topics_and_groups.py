"""`millstream topic` and `millstream group`, as scripts use them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Ran, run
from sql_shell.terminal import terminal

from millstream.server.child import ServerProcess

pytestmark = pytest.mark.process


Command = Callable[..., Ran]


def test_a_topic_is_created_listed_described_and_deleted(millstream: Command) -> None:
    assert millstream("topic", "create", "orders", "--queues", "2").code == 0
    assert {"topic": "orders", "type": "normal", "queues": 2, "attributes": ""} in millstream(
        "topic", "list", "-o", "json"
    ).json()
    described = millstream("topic", "describe", "orders", "-o", "json").json()
    assert [queue["queue"] for queue in described] == [0, 1]
    assert [queue["messages"] for queue in described] == [0, 0]
    assert millstream("topic", "delete", "orders").code == 0
    assert "orders" not in millstream("topic", "list").out


def test_a_topic_with_messages_is_deleted_by_who_says_so_alone(millstream: Command) -> None:
    millstream("topic", "create", "full")
    millstream("produce", "full", "one", "two")
    refused = millstream("topic", "delete", "full")
    assert (refused.code, "2 messages" in refused.err, "--yes" in refused.err) == (2, True, True)
    assert sum(queue["messages"] for queue in millstream("topic", "describe", "full", "-o", "json").json()) == 2
    assert millstream("topic", "delete", "full", "--yes").code == 0
    assert millstream("topic", "describe", "full").code == 1


def test_on_a_terminal_the_deletion_of_messages_is_asked_for(server: ServerProcess, tmp_path: Path) -> None:
    millstream = ["--nameserver", server.addresses.nameserver]
    run("topic", "create", "asked", *millstream)
    run("produce", "asked", "one", *millstream)
    for answer, code in (("n", 2), ("y", 0)):
        with terminal("topic", "delete", "asked", *millstream, home=tmp_path) as typed:
            typed.wait_for("Topic asked has 1 message")
            typed.wait_for("[y/N]")
            typed.type(f"{answer}\n")
            typed.wait_for("Nothing was deleted" if code else "topic asked is deleted")
            assert typed.exit_code() == code


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("produce order x", 'Did you mean "orders-near"? Else create it: millstream topic create order.'),
        ("consume Orders-Near --count 1", 'Did you mean "orders-near"?'),
        ("topic describe order-near", 'Did you mean "orders-near"?'),
        ("ingest file order {file} --once --dir {directory}", 'Did you mean "orders-near"?'),
        ("group lag billing-nar", 'Did you mean "billing-near"? Else create it: millstream group create billing-nar.'),
        ("group reset billing-near --topic order-near --to earliest --yes", 'Did you mean "orders-near"?'),
        ("group delete qqqq", "exist. Create it: millstream group create qqqq."),
    ],
)
def test_a_misspelled_name_is_told_with_the_nearest_and_the_command_that_creates_it(
    millstream: Command, tmp_path: Path, words: str, remedy: str
) -> None:
    (tmp_path / "lines").write_text("one\n")
    millstream("topic", "create", "orders-near")
    millstream("group", "create", "billing-near")
    refused = millstream(*words.format(file=tmp_path / "lines", directory=tmp_path / "state").split())
    assert refused.code == 1
    assert remedy in refused.err


def test_a_topic_gets_more_queues_and_keeps_its_settings_and_messages(millstream: Command) -> None:
    assert millstream("topic", "create", "growing", "--type", "fifo", "--queues", "2", "--keep-hours", "5").code == 0
    assert millstream("produce", "growing", "kept", "--group", "g").code == 0
    grown = millstream("topic", "update", "growing", "--queues", "6", "-o", "json")
    assert (grown.code, grown.json()) == (0, {"topic": "growing", "queues": 6}), grown.err
    [listed] = [topic for topic in millstream("topic", "list", "-o", "json").json() if topic["topic"] == "growing"]
    assert listed == {"topic": "growing", "type": "fifo", "queues": 6, "attributes": "reserve.time=5"}
    described = millstream("topic", "describe", "growing", "-o", "json").json()
    assert [queue["queue"] for queue in described] == [0, 1, 2, 3, 4, 5]
    assert sum(queue["messages"] for queue in described) == 1


def test_a_topic_never_gets_fewer_queues(millstream: Command) -> None:
    assert millstream("topic", "create", "shrinking", "--queues", "4").code == 0
    refused = millstream("topic", "update", "shrinking", "--queues", "3")
    assert (refused.code, refused.out) == (1, "")
    assert "'shrinking' has 4 queues and cannot have 3" in refused.err
    assert "make another topic" in refused.err
    assert "MS-2326" in refused.err
    assert len(millstream("topic", "describe", "shrinking", "-o", "json").json()) == 4
    assert millstream("topic", "update", "shrinking", "--queues", "4").code == 0
    missing = millstream("topic", "update", "nowhere", "--queues", "4")
    assert (missing.code, "MS-2101" in missing.err) == (1, True)


def test_a_static_topic_gets_its_queues_from_the_cluster(millstream: Command) -> None:
    assert millstream("topic", "create", "spread", "--static", "--queues", "2").code == 0
    refused = millstream("topic", "update", "spread", "--queues", "3")
    assert (refused.code, "topic create spread --static --queues 3" in refused.err) == (1, True), refused.err


def test_the_systems_own_topics_are_there_for_tools_but_are_not_listed_and_stay(millstream: Command) -> None:
    listed = {topic["topic"] for topic in millstream("topic", "list", "-o", "json").json()}
    for name in ("DefaultCluster", "DefaultCluster_REPLY_TOPIC", "RMQ_SYS_TRACE_TOPIC"):
        assert millstream("topic", "describe", name).code == 0
        assert name not in listed
        refused = millstream("topic", "delete", name)
        assert (refused.code, "MS-2103" in refused.err) == (1, True)


def test_creating_a_topic_again_is_no_error_but_with_other_settings_it_is(millstream: Command) -> None:
    assert millstream("topic", "create", "twice").code == 0
    assert millstream("topic", "create", "twice").code == 0
    other = millstream("topic", "create", "twice", "--queues", "9")
    assert other.code == 1
    assert "MS-2102" in other.err


def test_the_case_of_the_type_does_not_matter(millstream: Command) -> None:
    assert millstream("topic", "create", "ordered", "--type", "FIFO").code == 0
    assert millstream("topic", "create", "ordered", "--type", "fifo").code == 0


def test_a_topic_of_transactional_messages_can_be_made(millstream: Command) -> None:
    assert millstream("topic", "create", "orders-tx", "--type", "TRANSACTION").code == 0
    listed = millstream("topic", "list", "-o", "json").json()
    assert [topic["type"].lower() for topic in listed if topic["topic"] == "orders-tx"] == ["transaction"]


def test_an_unknown_type_is_a_usage_error(millstream: Command) -> None:
    refused = millstream("topic", "create", "t", "--type", "sometimes")
    assert refused.code == 2
    assert "transaction" in refused.err


def test_an_illegal_name_is_refused_with_its_number(millstream: Command) -> None:
    refused = millstream("topic", "create", "no blanks")
    assert refused.code == 1
    assert "no blanks" in refused.err
    assert "MS-2103" in refused.err
    assert "Traceback" not in refused.err


def test_an_unknown_topic_is_refused_with_the_remedy(millstream: Command) -> None:
    for command in (("topic", "describe"), ("topic", "delete"), ("consume",)):
        refused = millstream(*command, "missing")
        assert (refused.code, refused.out) == (1, ""), command
        assert "missing" in refused.err
        assert "MS-2101" in refused.err


def test_a_group_is_created_listed_and_deleted(millstream: Command) -> None:
    assert millstream("group", "create", "readers", "--fifo", "--max-attempts", "3").code == 0
    [listed] = [one for one in millstream("group", "list", "-o", "json").json() if one["group"] == "readers"]
    assert (listed["fifo"], listed["max_attempts"], listed["first"], listed["enabled"]) == (True, 3, "earliest", True)
    assert millstream("group", "delete", "readers").code == 0
    assert millstream("group", "delete", "readers").code == 1


def test_attributes_are_listed_and_a_difference_in_them_is_named(millstream: Command) -> None:
    assert millstream("topic", "create", "bulky", "--batches", "--keep-hours", "5").code == 0
    [listed] = [t for t in millstream("topic", "list", "-o", "json").json() if t["topic"] == "bulky"]
    assert listed["attributes"] == "queue.type=BatchCQ,reserve.time=5"
    refused = millstream("topic", "create", "bulky")
    assert refused.code != 0
    assert "attributes queue.type=BatchCQ, reserve.time=5" in refused.err
    both = millstream("topic", "create", "neither", "--batches", "--compacted")
    assert both.err.count("Choose one of the two.") == 1
    assert "Use letters" not in both.err
