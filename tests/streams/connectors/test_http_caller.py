"""Requests are repeated while a server is busy or away, and wait as long as it says."""

from __future__ import annotations

import socket

import pytest

from http_servers import Asked, Told, serving
from millstream.model.backoff import Backoff
from millstream.model.errors import TimedOut, Unreachable
from millstream.streams.connectors.http.caller import MAX_WAIT_S, HttpCaller, HttpServer, Retries


def retries(count: int, first_s: float) -> Retries:
    """So many, with waits that chance takes nothing off."""
    return Retries(count, Backoff(first_s, MAX_WAIT_S, random=lambda: 0.0))


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


def test_a_connection_that_the_server_closed_meanwhile_is_opened_again_without_a_wait() -> None:
    def reply(asked: Asked) -> Told:
        return Told(200, b"1")

    waits: list[float] = []
    with serving(reply) as server:
        caller = HttpCaller(HttpServer((server.address,)), retries(0, 9.0), sleep=waits.append)
        assert caller.call("GET", "/").body == b"1"
        connection = caller._connection
        assert connection is not None
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
        assert caller.call("GET", "/").body == b"1"
        caller.close()
    assert waits == []


def test_an_answer_that_does_not_come_in_time_is_told_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        caller = HttpCaller(HttpServer((address,), timeout_s=0.05), Retries(0), sleep=lambda _: None)
        with pytest.raises(TimedOut, match=r"did not answer within 0\.05 s"):
            caller.call("GET", "/")
