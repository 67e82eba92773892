"""Requests are repeated while a server is busy or away, and wait as long as it says."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from certificates import identity_in, needs_openssl
from http_servers import Told, serving
from millstream.model.backoff import Backoff
from millstream.model.errors import TimedOut, Unreachable
from millstream.streams.connectors.http import caller as module
from millstream.streams.connectors.http.caller import MAX_WAIT_S, CallRetries, HttpCaller, HttpServer
from millstream.streams.errors import JobError

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"


def retries(count: int, first_s: float) -> CallRetries:
    """So many, with waits that chance takes nothing off."""
    return CallRetries(count, Backoff(first_s, MAX_WAIT_S, random=lambda: 0.0))


@contextmanager
def playing(*connections: Sequence[bytes]) -> Iterator[str]:
    """The address of a server that answers the requests of each connection so, one by one, and closes it then."""

    def serve() -> None:
        for answers in connections:
            connection, _ = server.accept()
            with connection:
                for answer in answers:
                    request = b""
                    while not request.endswith(b"\r\n\r\n"):
                        request += connection.recv(65_536)
                    connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_busy_server_is_asked_again_after_twice_the_wait_each_time() -> None:
    waits: list[float] = []
    left = [Told(503), Told(429), Told(500), Told(200, b"done")]
    with serving(lambda _: left.pop(0)) as server:
        caller = HttpCaller(HttpServer((server.address,)), retries(5, 0.5), sleep=waits.append)
        answer = caller.call("POST", "/x", b"body", {"A": "b"})
        caller.close()
    assert (answer.status, answer.body, waits) == (200, b"done", [0.5, 1.0, 2.0])
    assert [(asked.method, asked.path, asked.body, asked.headers["a"]) for asked in server.requests] == [
        ("POST", "/x", b"body", "b")
    ] * 4


@pytest.mark.parametrize(
    ("said", "waited_s"),
    [("7", 7.0), ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0), ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0), ("soon", 0.5),
     ("86400", 300.0)],
)  # fmt: skip
def test_what_the_server_says_of_the_wait_goes_first_within_a_limit(said: str, waited_s: float) -> None:
    waits: list[float] = []
    left = [Told(429, headers={"Retry-After": said}), Told(200)]
    with serving(lambda _: left.pop(0)) as server:
        caller = HttpCaller(HttpServer((server.address,)), retries(1, 0.5), sleep=waits.append, now=lambda: 60.0)
        assert caller.call("GET", "/").status == 200
        caller.close()
    assert waits == [waited_s]


def test_the_last_answer_is_given_when_repeating_did_not_help() -> None:
    with serving(lambda _: Told(503, b"down")) as server:
        caller = HttpCaller(HttpServer((server.address,)), retries(2, 0.0), sleep=lambda _: None)
        assert caller.call("GET", "/").is_busy
        assert not caller.call("GET", "/", repeats=False).is_success
        caller.close()
    assert len(server.requests) == 4


def test_another_server_is_asked_where_one_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        away = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with serving(lambda _: Told(200, b"here")) as server:
        caller = HttpCaller(HttpServer((away, server.address)), retries(1, 0.0), sleep=lambda _: None)
        assert caller.call("GET", "/").body == b"here"
        assert caller.call("GET", "/").body == b"here"
        caller.close()
    alone = HttpCaller(HttpServer((away,)), retries(1, 0.0), sleep=lambda _: None)
    with pytest.raises(Unreachable, match=f"{away} cannot be asked: .*refused"):
        alone.call("GET", "/secret?token=x")


@pytest.mark.parametrize("first", [[OK], [OK, b""]], ids=["while idle", "after the next request"])
def test_a_connection_that_the_server_closed_meanwhile_is_opened_again_without_a_wait(first: list[bytes]) -> None:
    waits: list[float] = []
    with playing(first, [OK]) as address:
        caller = HttpCaller(HttpServer((address,)), retries(0, 9.0), sleep=waits.append)
        assert [caller.call("GET", "/").body for _ in range(2)] == [b"1", b"1"]
        caller.close()
    assert waits == []


def test_a_connection_that_is_closed_at_its_first_request_counts_as_an_attempt() -> None:
    waits: list[float] = []
    with playing([b""], [OK]) as address:
        caller = HttpCaller(HttpServer((address,)), retries(1, 9.0), sleep=waits.append)
        assert caller.call("GET", "/").body == b"1"
        caller.close()
    assert waits == [9.0]
    with playing([b""]) as address:
        alone = HttpCaller(HttpServer((address,)), retries(0, 9.0))
        with pytest.raises(Unreachable, match=f"{address} closed the connection without an answer"):
            alone.call("GET", "/")


def test_an_answer_that_breaks_off_is_none() -> None:
    with playing([OK.replace(b"Length: 1", b"Length: 7")], [OK]) as address:
        caller = HttpCaller(HttpServer((address,)), retries(0, 0.0))
        with pytest.raises(Unreachable, match=f"{address} cannot be asked: .*breaks off 6 bytes before its end"):
            caller.call("GET", "/")
        assert caller.call("GET", "/").body == b"1"
        caller.close()


def test_an_answer_that_is_too_long_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ANSWER_BYTES", 3)
    with serving(lambda _: Told(200, b"four")) as server:
        caller = HttpCaller(HttpServer((server.address,)), retries(0, 0.0))
        with pytest.raises(JobError, match=f"{server.address} answers with more than 3 bytes"):
            caller.call("GET", "/")


def test_a_body_and_its_redirects_are_left_as_the_server_sent_them() -> None:
    packed = gzip.compress(b"x")
    left = [Told(200, packed, {"Content-Encoding": "gzip"}), Told(302, b"", {"Location": "/elsewhere"})]
    with serving(lambda _: left.pop(0)) as server:
        caller = HttpCaller(HttpServer((server.address + "/prefix/",), {"X-Who": "us"}), retries(0, 0.0))
        assert caller.call("GET", "/x").body == packed
        assert caller.call("POST", "").status == 302
        caller.close()
    assert [asked.path for asked in server.requests] == ["/prefix/x", "/prefix/"]
    assert server.requests[0].headers.keys() == {"host", "accept-encoding", "x-who"}
    assert server.requests[0].headers["accept-encoding"] == "identity"


@needs_openssl
def test_a_server_is_verified_by_the_certificates_of_the_file(tmp_path: Path) -> None:
    identity, files = identity_in(tmp_path)
    with serving(lambda _: Told(200, b"here"), identity.context) as server:
        caller = HttpCaller(HttpServer((server.address,), ca_file=str(files.certificate)), retries(0, 0.0))
        assert [caller.call("GET", "/").body for _ in range(2)] == [b"here", b"here"]
        caller.close()
        for ca_file, said in (("", "certificate verify failed"), (str(tmp_path / "none"), "No such file")):
            stranger = HttpCaller(HttpServer((server.address,), ca_file=ca_file), retries(0, 0.0))
            with pytest.raises(Unreachable, match=f"{server.address} cannot be asked: .*{said}"):
                stranger.call("GET", "/")


def test_an_answer_that_does_not_come_in_time_is_told_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        caller = HttpCaller(HttpServer((address,), timeout_s=0.05), CallRetries(0), sleep=lambda _: None)
        for body in (b"", b"more than the system takes for a server" * 1_000_000):
            with pytest.raises(TimedOut, match=r"did not answer within 0\.05 s"):
                caller.call("POST", "/", body)
