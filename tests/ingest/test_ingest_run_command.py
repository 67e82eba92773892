"""`millstream ingest run`: several inputs by a file."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest
from gateways import bodies, new_topic, ran, running_gateway, wait_for_messages

from millstream.cli.ingest.run import ingest_run
from millstream.model.errors import StartRefused
from servers import Servers

pytestmark = pytest.mark.process


EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "ingestion" / "gateway.toml"


def test_the_inputs_of_a_file_run_in_one_process_each_with_its_topic_and_counts(
    servers_in_thread: Servers, tmp_path: Path
) -> None:
    nameserver, log = servers_in_thread.nameserver, tmp_path / "a.log"
    lines, events = new_topic(nameserver, "lines"), new_topic(nameserver, "events")
    log.write_text("one\n")
    configuration = tmp_path / "ingest.toml"
    configuration.write_text(f"""
        [[input]]
        kind = "file"
        topic = "{lines}"
        path = "{log}"
        dir = "{tmp_path / "state"}"
        tag = "web"
        [[input]]
        kind = "syslog"
        name = "devices"
        topic = "{events}"
        udp = 0
        host = "127.0.0.1"
        format = "raw"
        [[input]]
        kind = "http"
        topic = "{events}"
        port = 0
        """)
    with running_gateway(nameserver, "run", str(configuration), "--metrics-port", "0") as gateway:
        [line] = wait_for_messages(nameserver, lines, 1)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"<13>two", ("127.0.0.1", gateway.port("devices.syslog-udp")))
        wait_for_messages(nameserver, events, 1)
        headers = {"content-type": "text/plain"}
        posted = httpx.post(f"http://127.0.0.1:{gateway.port('http.http')}/", content=b"three", headers=headers)
        page = httpx.get(f"http://127.0.0.1:{gateway.port('metrics')}/metrics").text
        code, counts, _ = gateway.stop()
    assert (line.body, line.tag, posted.status_code) == (b"one", "web", 200)
    assert bodies(wait_for_messages(nameserver, events, 2)) == ["<13>two", "three"]
    assert 'input="devices",outcome="stored"} 1' in page
    assert (code, {name: one["stored"] for name, one in counts.items()}) == (0, {"file": 1, "devices": 1, "http": 1})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs 1 to 64 tables [[input]]"),
        ("[[inputs]]", "there is no 'inputs'"),
        ("input = 3", "needs 1 to 64 tables [[input]]"),
        ('[[input]]\nkind = "ftp"', "input 1: kind is 'ftp'; it is to be file, syslog, http"),
        ('[[input]]\nkind = "http"', "input 1 needs a topic"),
        ('[[input]]\nkind = "http"\ntopic = "a"\nprot = 1', "--prot"),
        ('[[input]]\nkind = "http"\ntopic = "a"\nport = 99999', "65535"),
        ('[[input]]\nkind = "http"\ntopic = "a"\nport = [1]', "port is a list, not a text or number"),
        ('[[input]]\nkind = "http"\ntopic = "a"\nmetrics-port = 1', "metrics-port is of the whole process"),
        ('[[input]]\nkind = "syslog"\ntopic = "a"', "input 1 cannot be used"),
        ('[[input]]\nkind = "http"\ntopic = "a"\n' * 2, "two inputs are named http"),
        ("[[input", "is no TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_input_and_the_name(
    tmp_path: Path, text: str, words: str
) -> None:
    configuration = tmp_path / "ingest.toml"
    configuration.write_text(text)
    with pytest.raises(StartRefused) as refused:
        ingest_run(configuration)
    assert words in str(refused.value)
    assert str(configuration) in str(refused.value)


def test_the_example_can_be_read_as_it_is(servers_in_thread: Servers) -> None:
    done = ran(servers_in_thread.nameserver, "run", str(EXAMPLE))
    # Its topics are not there; everything before that was in order.
    assert done.returncode == 1
    assert "MS-2101" in done.stderr
