"""`millstream ingest syslog` against a real broker, fed by util-linux's logger and by sockets of ours."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from gateways import GatewayProcess, bodies, new_topic, ran, running_gateway, wait_for_messages

from certificates import identity_in, needs_openssl, trusting
from millstream.ingest.syslog.listeners import drops_in
from servers import Servers

pytestmark = pytest.mark.process


needs_logger = pytest.mark.skipif(shutil.which("logger") is None, reason="logger of util-linux sends the messages")


def logger(port: int, *words: str) -> None:
    command = ["logger", "--server", "127.0.0.1", "--port", str(port), "--tag", "ingest-test", *words]
    subprocess.run(command, check=True, timeout=30)


def fields_of(servers: Servers, topic: str, count: int) -> list[dict[str, Any]]:
    return [json.loads(body) for body in bodies(wait_for_messages(servers.nameserver, topic, count))]


@needs_logger
def test_what_logger_sends_in_both_formats_over_both_transports_arrives_taken_apart(
    servers_in_thread: Servers,
) -> None:
    topic = new_topic(servers_in_thread.nameserver, "logger")
    words = ["syslog", topic, "--udp", "0", "--tcp", "0", "--host", "127.0.0.1"]
    with running_gateway(servers_in_thread.nameserver, *words) as gateway:
        udp, tcp = gateway.port("syslog-udp"), gateway.port("syslog-tcp")
        logger(udp, "--udp", "--rfc3164", "--priority", "auth.err", "over udp, old")
        logger(udp, "--udp", "--rfc5424", "--id=77", "over udp, new")
        logger(tcp, "--tcp", "--rfc5424", "--sd-id", "a@1", "--sd-param", 'b="c d"', "over tcp, by line")
        logger(tcp, "--tcp", "--rfc5424", "--octet-count", "over tcp, by count")
        logger(tcp, "--tcp", "--rfc3164", "over tcp, old")
        found = {one["message"]: one for one in fields_of(servers_in_thread, topic, 5)}
        messages = wait_for_messages(servers_in_thread.nameserver, topic, 5)
        code, counts, _ = gateway.stop()
    old, new = found["over udp, old"], found["over udp, new"]
    assert (old["format"], old["facility"], old["severity"], old["app"]) == ("rfc3164", "auth", "err", "ingest-test")
    assert (new["format"], new["app"], new["process_id"], new["severity"]) == ("rfc5424", "ingest-test", "77", "notice")
    assert found["over tcp, by line"]["structured_data"]["a@1"] == {"b": "c d"}
    assert found["over tcp, by count"]["format"] == "rfc5424"
    assert found["over tcp, old"]["format"] == "rfc3164"
    assert {message.user_properties["peer"] for message in messages} == {"127.0.0.1"}
    assert (code, counts["syslog"]["taken"], counts["syslog"]["stored"], counts["syslog"]["malformed"]) == (0, 5, 5, 0)


def connection_to(gateway: GatewayProcess, name: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", gateway.port(name)), timeout=30)


def test_broken_long_and_unfinished_messages_are_counted_and_the_port_serves_on(servers_in_thread: Servers) -> None:
    topic = new_topic(servers_in_thread.nameserver, "broken")
    words = ["syslog", topic, "--tcp", "0", "--udp", "0", "--host", "127.0.0.1", "--max-message-bytes", "480"]
    with running_gateway(servers_in_thread.nameserver, *words) as gateway:
        with connection_to(gateway, "syslog-tcp") as peer:
            peer.sendall(b"<13>" + b"x" * 1000 + b"\n" + b"<13>bad \xff\xfe utf-8\n" + b"100 <13>cut off")
        with connection_to(gateway, "syslog-tcp") as peer:
            peer.sendall(b"\x16\x03\x01 no syslog at all\n<13>Nov  1 00:00:00 h a: fine\n")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"<13>" + b"y" * 2000, ("127.0.0.1", gateway.port("syslog-udp")))
            sender.sendto(b"", ("127.0.0.1", gateway.port("syslog-udp")))
        messages = wait_for_messages(servers_in_thread.nameserver, topic, 6)
        code, counts, said = gateway.stop()
    found = {json.loads(message.body)["message"]: message for message in messages}
    assert found["x" * 476].user_properties["cut-from-bytes"] == "1004"
    assert found["y" * 476].user_properties["cut-from-bytes"] == "2004"
    assert {"bad \ufffd\ufffd utf-8", "cut off", "\x16\x03\x01 no syslog at all", "fine"} < found.keys()
    assert (code, counts["syslog"]["cut"], counts["syslog"]["broken"], counts["syslog"]["peers"]) == (0, 2, 1, 0)
    assert "127.0.0.1 went in the middle of a message" in said
    assert "Traceback" not in said


@needs_openssl
def test_messages_arrive_by_tls_and_as_they_came_where_that_is_wanted(
    servers_in_thread: Servers, tmp_path: Path
) -> None:
    topic = new_topic(servers_in_thread.nameserver, "tls")
    _, files = identity_in(tmp_path)
    words = ["syslog", topic, "--tls", "0", "--host", "127.0.0.1", "--format", "raw"]
    words += ["--tls-cert", str(files.certificate), "--tls-key", str(files.key)]
    body = b"<13>1 - - - - - - by \xff tls"
    with running_gateway(servers_in_thread.nameserver, *words) as gateway:
        with connection_to(gateway, "syslog-tls") as plain:
            plain.sendall(b"<13>not by tls\n")
            plain.shutdown(socket.SHUT_WR)
        with trusting(files).wrap_socket(connection_to(gateway, "syslog-tls"), server_hostname="127.0.0.1") as peer:
            peer.sendall(b"%d %b" % (len(body), body))
            [message] = wait_for_messages(servers_in_thread.nameserver, topic, 1)
        _, counts, said = gateway.stop()
    assert message.body == body
    assert counts["syslog"]["taken"] == 1
    assert "Traceback" not in said


def test_twenty_thousand_datagrams_in_a_row_all_arrive_in_the_bulk_lane(servers_in_thread: Servers) -> None:
    topic = new_topic(servers_in_thread.nameserver, "burst", is_bulk=True)
    words = ["syslog", topic, "--udp", "0", "--host", "127.0.0.1", "--bulk"]
    with running_gateway(servers_in_thread.nameserver, *words) as gateway:
        place = ("127.0.0.1", gateway.port("syslog-udp"))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(20_000):
                sender.sendto(b"<13>1 2026-11-22T10:00:00Z host app - - - message %d" % number, place)
                if number % 500 == 0:
                    time.sleep(0.005)
        found = fields_of(servers_in_thread, topic, 20_000)
        code, counts, _ = gateway.stop()
    assert [one["message"] for one in found] == [f"message {number}" for number in range(20_000)]
    assert (code, counts["syslog"]["kernel_drops"]) == (0, 0)


def test_a_port_that_is_taken_is_said_with_its_holder(servers_in_thread: Servers) -> None:
    topic = new_topic(servers_in_thread.nameserver, "taken")
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        done = ran(servers_in_thread.nameserver, "syslog", topic, "--tcp", port, "--host", "127.0.0.1")
    assert done.returncode == 1
    assert "MS-1001" in done.stderr


def test_the_kernels_drops_are_read_from_its_table_by_the_sockets_inode() -> None:
    # As proc(5) describes the columns; the last one counts drops.
    line = "  361: 0100007F:158A 00000000:0000 07 00000000:00000000 00:00000000 00000000  0  0 {} 2 0000000000000000 {}"
    lines = [line.format(100, 3), line.format(4711, 42), "broken line"]
    assert drops_in(lines, 4711) == 42
    assert drops_in(lines, 5) is None
