"""`millstream produce` and `millstream consume`, as scripts use them."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Ran, run

from millstream.server.child import ServerProcess

pytestmark = pytest.mark.process


Command = Callable[..., Ran]


def test_what_was_produced_is_consumed(millstream: Command) -> None:
    millstream("topic", "create", "hello")
    sent = millstream("produce", "hello", "first message", "--tag", "a", "--key", "k1", "-o", "json").json()
    assert sent["topic"] == "hello"
    read = millstream("consume", "hello", "--until-end", "-o", "json").json()
    assert (read["body"], read["tag"], read["keys"]) == ("first message", "a", ["k1"])
    assert read["message_id"] == sent["message_id"]


def test_lines_of_standard_input_become_messages(millstream: Command) -> None:
    millstream("topic", "create", "lines", "--queues", "1")
    assert millstream("produce", "lines", "-", stdin="one\n\ntwo\nthree ü\n").code == 0
    assert millstream("consume", "lines", "--until-end").out.splitlines() == ["one", "two", "three ü"]


def test_a_group_goes_on_where_it_stopped(millstream: Command) -> None:
    millstream("topic", "create", "resumed", "--queues", "1")
    millstream("produce", "resumed", "-", stdin="1\n2\n3\n")
    assert millstream("consume", "resumed", "-g", "g1", "--count", "2").out.splitlines() == ["1", "2"]
    assert millstream("consume", "resumed", "-g", "g1", "--until-end").out.splitlines() == ["3"]
    assert millstream("consume", "resumed", "-g", "g2", "--until-end").out.splitlines() == ["1", "2", "3"]


def test_a_filter_shows_only_its_tags(millstream: Command) -> None:
    millstream("topic", "create", "tagged", "--queues", "1")
    for tag in ("a", "b", "c"):
        millstream("produce", "tagged", f"with {tag}", "--tag", tag)
    shown = millstream("consume", "tagged", "--filter", "a || c", "--until-end").out
    assert shown.splitlines() == ["with a", "with c"]


def test_a_condition_shows_only_the_messages_for_which_it_is_true(millstream: Command) -> None:
    millstream("topic", "create", "priced", "--queues", "1")
    for price in ("5", "15", "dear"):
        millstream("produce", "priced", f"costs {price}", "--property.price", price)
    shown = millstream("consume", "priced", "--filter-sql", "price > 10 OR price = 'dear'", "--until-end").out
    assert shown.splitlines() == ["costs 15", "costs dear"]


def test_a_condition_that_cannot_be_read_is_refused_before_anything_is_shown(millstream: Command) -> None:
    refused = millstream("consume", "anything", "--filter-sql", "price >")
    assert (refused.code, refused.out) == (1, "")
    assert "at character 8: expected a property, a value or (, found the end" in refused.err
    assert "not both" in millstream("consume", "anything", "--filter", "a", "--filter-sql", "b = 1").err


def test_waiting_in_vain_for_a_count_has_its_own_exit_code(millstream: Command) -> None:
    millstream("topic", "create", "quiet")
    assert millstream("consume", "quiet", "--count", "1", "--wait", "0.3").code == 4


def test_an_oversized_body_is_refused_and_the_other_lines_are_sent(millstream: Command) -> None:
    millstream("topic", "create", "large", "--queues", "1")
    partly = millstream("produce", "large", "-", stdin="small\n" + "x" * (4 * 1024 * 1024 + 1) + "\nafter\n")
    assert partly.code == 5
    assert "MS-3002" in partly.err
    assert millstream("consume", "large", "--until-end").out.splitlines() == ["small", "after"]


def test_an_empty_body_is_refused(millstream: Command) -> None:
    millstream("topic", "create", "empty")
    refused = millstream("produce", "empty", "")
    assert refused.code == 1
    assert "MS-3001" in refused.err


def test_messages_of_another_type_are_refused(millstream: Command) -> None:
    millstream("topic", "create", "delayed", "--type", "delay")
    refused = millstream("produce", "delayed", "now")
    assert refused.code == 1
    assert "MS-3008" in refused.err


def test_properties_travel(millstream: Command) -> None:
    millstream("topic", "create", "props")
    millstream("produce", "props", "x", "--property.origin", "unit test")
    read = json.loads(millstream("consume", "props", "--until-end", "-o", "json").out)
    assert read["properties"] == {"origin": "unit test"}


def test_a_message_is_found_by_its_key_and_by_its_id(millstream: Command) -> None:
    millstream("topic", "create", "keyed")
    sent = millstream("produce", "keyed", "wanted", "--key", "k1", "-o", "json").json()
    millstream("produce", "keyed", "other", "--key", "k2")
    for key in ("k1", sent["message_id"]):
        [found] = millstream("message", "find", "keyed", key, "-o", "json").json()
        assert (found["body"], found["message_id"]) == ("wanted", sent["message_id"])
    nothing = millstream("message", "find", "keyed", "k3")
    assert (nothing.code, nothing.out) == (0, "")
    assert "no message with the key 'k3'" in nothing.err


def test_bodies_and_properties_of_the_command_line(millstream: Command) -> None:
    millstream("topic", "create", "several", "--queues", "1")
    sent = millstream("produce", "several", "a", "b", "-p", "x=1=2", "--property", "y=", "--repeat", "2")
    assert (sent.code, sent.out, sent.err) == (0, "", "sent 4 messages to several\n")
    read = [json.loads(line) for line in millstream("consume", "several", "--until-end", "-o", "json").out.splitlines()]
    assert [message["body"] for message in read] == ["a", "b", "a", "b"]
    assert read[0]["properties"] == {"x": "1=2", "y": ""}


def test_ids_are_shown_of_many_on_wish(millstream: Command) -> None:
    millstream("topic", "create", "shown", "--queues", "1")
    lines = millstream("produce", "shown", "a", "b", "--ids").out.splitlines()
    assert [line.split("\t")[1:] for line in lines] == [
        ["shown", "broker-a", "0", "0"],
        ["shown", "broker-a", "0", "1"],
    ]


def test_the_lines_of_a_file_or_the_whole_file_are_sent(millstream: Command, tmp_path: Path) -> None:
    millstream("topic", "create", "filed", "--queues", "1")
    (tmp_path / "lines").write_bytes(b"a\n\nb")
    millstream("produce", "filed", "--file", str(tmp_path / "lines"))
    millstream("produce", "filed", "--file", str(tmp_path / "lines"), "--whole")
    assert millstream("consume", "filed", "--until-end").out == "a\nb\na\n\nb\n"


def test_a_paced_send_sends_everything(millstream: Command) -> None:
    millstream("topic", "create", "paced", "--queues", "1")
    assert millstream("produce", "paced", "x", "--repeat", "7", "--rate", "1000").err == "sent 7 messages to paced\n"


def test_a_delayed_message_is_recalled_by_the_handle_that_was_shown(millstream: Command) -> None:
    millstream("topic", "create", "reminders", "--type", "delay")
    sent = millstream("produce", "reminders", "x", "--delay", "1h", "-o", "json").json()
    assert (sent["queue"], sent["offset"]) == (None, None)
    recalled = millstream("message", "recall", sent["recall_handle"], "-o", "json").json()
    assert recalled["message_id"] == sent["message_id"]
    again = millstream("message", "recall", sent["recall_handle"])
    assert (again.code, "MS-3012" in again.err) == (1, True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("x", "--delay", "5x"), "'5x' is no length of time"),
        (("x", "--at", "2020-01-01"), "is over"),
        (("x", "--at", "soon"), "'soon' is no time"),
        (("x", "--at", "2999-01-01", "--delay", "5s"), "not both"),
        (("x", "-p", "novalue"), "'novalue'"),
        (("x", "-"), "not several"),
        (("x", "--whole"), "--whole"),
        (("-", "--repeat", "2"), "--repeat"),
        (("--delya", "5s"), "--delay"),
    ],
)
def test_options_that_cannot_be_meant_are_usage_errors(wrong: tuple[str, ...], said: str) -> None:
    refused = run("produce", "anything", *wrong)
    assert refused.code == 2
    assert said in refused.err


@pytest.fixture
def heeded_interrupts() -> Iterator[None]:
    """Ctrl-C ends children also where the tests run in a shell's background, which tells them to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded_interrupts")
def test_ctrl_c_says_how_many_were_sent(server: ServerProcess, millstream: Command) -> None:
    millstream("topic", "create", "stopped", "--queues", "1")
    command = [sys.executable, "-m", "millstream", "produce", "stopped", "-", "--ids"]
    with subprocess.Popen(
        [*command, "--nameserver", server.addresses.nameserver],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("one\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        # Its input stays open: an end of it would be another reason to stop.
        process.wait(30)
        assert process.stderr is not None
        said = process.stderr.read()
    assert (process.returncode, said) == (130, "stopped: sent 1 message to stopped\n")
