"""`millstream ingest file` against a real broker: restarts, kill -9, the bulk lane and the limits of lines."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from gateways import PATIENCE_S, bodies, count_of, messages_of, new_topic, ran, running_gateway, wait_for_messages

from millstream.client.blocking import BlockingClient
from millstream.model.topic import MessageType, TopicConfig
from millstream.server.child import RoleProcess
from servers import Servers, running_servers_in_thread

pytestmark = pytest.mark.process


def test_lines_arrive_with_file_key_and_tag_and_a_second_run_sends_what_came_since(
    servers_in_thread: Servers, tmp_path: Path
) -> None:
    nameserver, log = servers_in_thread.nameserver, tmp_path / "a.log"
    topic = new_topic(nameserver, "lines")
    words = ["file", topic, str(log), "--once", "--dir", str(tmp_path / "state"), "--key-field", "id", "--tag", "web"]
    log.write_text('{"id": 1}\n{"id": 2}\n')
    with running_gateway(nameserver, *words) as gateway:
        code, counts, _ = gateway.ended()
    assert code == 0
    assert (counts["file"]["taken"], counts["file"]["stored"]) == (2, 2)
    with log.open("a") as file:
        file.write('{"id": 3}')
    with running_gateway(nameserver, *words) as gateway:
        assert gateway.ended()[0] == 0
    found = messages_of(nameserver, topic)
    assert bodies(found) == ['{"id": 1}', '{"id": 2}', '{"id": 3}']
    assert [message.keys for message in found] == [("1",), ("2",), ("3",)]
    assert {(message.tag, message.user_properties["file"]) for message in found} == {("web", str(log))}


@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_gateway_that_is_killed_again_and_again_loses_no_line_and_keeps_their_order(
    servers_in_thread: Servers, tmp_path: Path, is_bulk: bool
) -> None:
    nameserver, log = servers_in_thread.nameserver, tmp_path / "a.log"
    topic = new_topic(nameserver, "kills", is_bulk=is_bulk)
    words = ["file", topic, str(log), "--dir", str(tmp_path / "state"), *["--bulk"] * is_bulk]
    written = 0
    for _ in range(3):
        with running_gateway(nameserver, *words) as gateway, log.open("a") as file:
            begun = count_of(nameserver, topic)
            deadline_s = time.monotonic() + PATIENCE_S
            while count_of(nameserver, topic) == begun and time.monotonic() < deadline_s:
                file.write("".join(f"line {number:06d}\n" for number in range(written, written + 100)))
                file.flush()
                written += 100
                time.sleep(0.02)
            gateway.process.send_signal(signal.SIGKILL)
            gateway.process.wait()
    with running_gateway(nameserver, *words, "--once") as gateway:
        assert gateway.ended()[0] == 0
    numbers = [int(line.split()[1]) for line in bodies(messages_of(nameserver, topic))]
    assert set(numbers) == set(range(written))
    # What comes twice is a stretch that was under way at a kill: the order of first arrivals is that of the file.
    assert list(dict.fromkeys(numbers)) == list(range(written))


def test_a_stop_sends_what_was_read_and_the_next_start_repeats_nothing(
    servers_in_thread: Servers, tmp_path: Path
) -> None:
    nameserver, log = servers_in_thread.nameserver, tmp_path / "a.log"
    topic = new_topic(nameserver, "stops", is_bulk=True)
    words = ["file", topic, str(log), "--dir", str(tmp_path / "state"), "--bulk"]
    log.write_text("".join(f"{number}\n" for number in range(1000)))
    with running_gateway(nameserver, *words) as gateway:
        wait_for_messages(nameserver, topic, 1000)
        assert gateway.stop()[0] == 0
    with running_gateway(nameserver, *words, "--once") as gateway:
        _, counts, _ = gateway.ended()
    assert counts["file"]["taken"] == 0
    assert bodies(messages_of(nameserver, topic)) == [str(number) for number in range(1000)]


def test_long_lines_are_cut_with_their_length_or_go_to_the_dead_letters(
    servers_in_thread: Servers, tmp_path: Path
) -> None:
    nameserver, log = servers_in_thread.nameserver, tmp_path / "a.log"
    cut, kept, dead = (new_topic(nameserver, name) for name in ("cut", "kept", "dead"))
    log.write_text("short\n" + "x" * 100 + "\nlast\n")
    limit = ["--max-line-bytes", "20", "--once"]
    with running_gateway(nameserver, "file", cut, str(log), "--dir", str(tmp_path / "1"), *limit) as gateway:
        assert gateway.ended()[1]["file"]["cut"] == 1
    words = ["file", kept, str(log), "--dir", str(tmp_path / "2"), "--oversized", "dead-letter", "--dead-letters", dead]
    with running_gateway(nameserver, *words, *limit) as gateway:
        assert gateway.ended()[1]["file"]["dead"] == 1
    assert bodies(messages_of(nameserver, cut)) == ["short", "x" * 20, "last"]
    assert messages_of(nameserver, cut)[1].user_properties["cut-from-bytes"] == "100"
    assert bodies(messages_of(nameserver, kept)) == ["short", "last"]
    assert bodies(messages_of(nameserver, dead)) == ["x" * 20]


def test_files_that_are_not_there_are_told_and_end_a_run_that_waits_for_none(
    servers_in_thread: Servers, tmp_path: Path
) -> None:
    nameserver = servers_in_thread.nameserver
    topic = new_topic(nameserver, "nothing")
    words = ["file", topic, str(tmp_path / "*.log"), "--dir", str(tmp_path / "state")]
    done = ran(nameserver, *words, "--once")
    assert done.returncode == 1
    assert f"No file matches {tmp_path}/*.log. Correct the path or pattern. [MS-1081]" in done.stderr
    with running_gateway(nameserver, *words) as gateway:
        (tmp_path / "a.log").write_text("one\n")
        assert bodies(wait_for_messages(nameserver, topic, 1)) == ["one"]
        _, _, said = gateway.stop()
    assert "It is waited for." in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["file", "nosuchtopic", "a.log"], "MS-2101"),
        (["file", "ordinary", "a.log", "--bulk"], "takes no bulk messages"),
        (["file", "inorder", "a.log"], "of type FIFO"),
        (["file", "ordinary"], "Name at least one file"),
        (["file", "ordinary", "a.log", "--event-start", "("], "--event-start is no regular expression"),
        (["file", "ordinary", "a.log", "--encoding", "utf-9"], "--encoding: there is no 'utf-9'"),
        (["file", "ordinary", "a.log", "--oversized", "dead-letter"], "needs --dead-letters TOPIC"),
        (["syslog", "ordinary"], "--udp, --tcp or --tls"),
        (["syslog", "ordinary", "--tls", "0"], "--tls needs --tls-cert FILE and --tls-key FILE"),
        (["http", "ordinary", "--tls-cert", "a.pem"], "HTTPS needs both"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_begins(
    servers_in_thread: Servers, tmp_path: Path, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    nameserver = servers_in_thread.nameserver
    new_topic(nameserver, "ordinary")
    with BlockingClient(nameserver) as client:
        client.create_topic(TopicConfig("inorder", MessageType.FIFO))
    done = ran(nameserver, *words)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_events_wait_while_the_broker_is_away_and_a_stop_then_keeps_the_position(tmp_path: Path) -> None:
    log, state = tmp_path / "a.log", tmp_path / "state"
    log.write_text("one\ntwo\n")
    with running_servers_in_thread(tmp_path / "data") as servers:
        topic = new_topic(servers.nameserver, "away")
        nameserver = servers.nameserver
    words = ["file", topic, str(log), "--dir", str(state), "--stop-after", "0.1", "--timeout", "1"]
    with running_gateway(nameserver, *words) as gateway:
        _, counts, said = gateway.stop()
    assert "the broker is away, events will wait for it" in said
    assert counts["file"]["stored"] == 0
    with running_servers_in_thread(tmp_path / "data") as servers:
        with running_gateway(servers.nameserver, *words, "--once") as gateway:
            assert gateway.ended()[0] == 0
        assert bodies(messages_of(servers.nameserver, topic)) == ["one", "two"]


@pytest.mark.parametrize("is_bulk", [False, True])
def test_a_broker_that_is_killed_and_comes_back_elsewhere_gets_every_line_in_order(
    tmp_path: Path, is_bulk: bool
) -> None:
    log = tmp_path / "a.log"
    with RoleProcess("nameserver", tmp_path / "nameserver", options=["--port", "0"]) as nameservers:
        nameserver = nameservers.addresses["nameserver"]
        options = ["--port", "0", "--nameservers", nameserver]
        log.write_text("".join(f"{number}\n" for number in range(1000)))
        words = ["file", "lines", str(log), "--dir", str(tmp_path / "state"), *["--bulk"] * is_bulk]
        with RoleProcess("broker", tmp_path / "broker", options=options) as broker:
            new_topic(nameserver, "lines", is_bulk=is_bulk)
            with running_gateway(nameserver, *words) as gateway:
                wait_for_messages(nameserver, "lines", 1000)
                broker.kill()
                with log.open("a") as file:
                    file.write("".join(f"{number}\n" for number in range(1000, 2000)))
                with RoleProcess("broker", tmp_path / "broker", options=options):
                    numbers = [int(body) for body in bodies(wait_for_messages(nameserver, "lines", 2000))]
                    _, counts, said = gateway.stop()
    assert list(dict.fromkeys(numbers)) == list(range(2000))
    assert (counts["file"]["stored"], counts["file"]["unsent"]) == (2000, 0)
    assert "Traceback" not in said


def test_without_a_file_that_matches_nothing_is_said_to_wait_for_a_broker(tmp_path: Path) -> None:
    words = ["file", "t", str(tmp_path / "nothing-*.log"), "--once", "--dir", str(tmp_path / "state")]
    # Nobody listens at the port of discards.
    done = ran("127.0.0.1:9", *words)
    assert done.returncode == 1
    assert "No file matches" in done.stderr
    assert "Correct the path or pattern" in done.stderr
    assert "away" not in done.stderr
