"""A load generator for one broker's port, in a process of its own: the same frames again and again, answers counted.

`python -m benchmarks.frame_load ADDRESS TOPIC send|pull SECONDS` says that it is connected, begins when a line comes,
and prints the messages, the seconds and its processor seconds. It makes and reads as little as it can, so that what is
measured is the broker.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Final, Self

from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import HeaderType, RemotingCommand
from millstream.protocol.remoting.frame import FrameDecoder, encode_frame

__all__ = ["FrameLoad"]

IN_FLIGHT: Final = 64
PULLED: Final = 32
_BODY = b"x" * 100
_LENGTH_BYTES = 4
_RECEIVE_BYTES = 1 << 20


class FrameLoad:
    """The generator, seen from the process that measures; leaving the block ends it."""

    def __init__(self, address: str, topic: str, kind: str, seconds: float) -> None:
        self._words = [sys.executable, "-m", "benchmarks.frame_load", address, topic, kind, str(seconds)]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def begin(self) -> None:
        """Start it."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def found(self) -> dict[str, Any]:
        """What it found, once its time is over."""
        assert self._process.stdout is not None
        told: dict[str, Any] = json.loads(self._process.stdout.readline())
        return told


def _frame(topic: str, kind: str) -> bytes:
    if kind == "send":
        short = {"a": "bench", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "h": "0", "i": "", "m": "false"}
        ext = {**short, "g": str(int(time.time() * 1000))}
        return b"".join(
            encode_frame(RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext, _BODY, header_type=HeaderType.JSON))
        )
    ext = {
        "consumerGroup": "bench", "topic": topic, "queueId": "0", "sysFlag": "4", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        "queueOffset": "0", "maxMsgNums": str(PULLED),
    }  # fmt: skip
    return b"".join(encode_frame(RemotingCommand(RequestCode.PULL_MESSAGE, ext)))


class _Answers:
    """Counts answers by their lengths alone, but for the first one, which must be a success."""

    def __init__(self) -> None:
        self._held = b""
        self._body_left = 0
        self._is_first = True

    def count(self, data: bytes) -> int:
        """Answers that end in these bytes."""
        ended = 0
        if self._is_first:
            self._is_first = False
            first = next(iter(FrameDecoder().feed(data)), None)
            if first is None or first.code != ResponseCode.SUCCESS:
                raise SystemExit(f"the broker refused the load: {first}")
        position = 0
        data = self._held + data
        while True:
            if self._body_left:
                taken = min(self._body_left, len(data) - position)
                self._body_left -= taken
                position += taken
                if self._body_left:
                    break
                ended += 1
            if len(data) - position < _LENGTH_BYTES:
                break
            self._body_left = int.from_bytes(data[position : position + _LENGTH_BYTES], "big")
            position += _LENGTH_BYTES
        self._held = data[position:]
        return ended


def main() -> int:
    """0 when the time is over."""
    address, topic, kind, seconds = sys.argv[1:]
    host, _, port = address.rpartition(":")
    frame = _frame(topic, kind)
    frames = frame * IN_FLIGHT
    with socket.create_connection((host, int(port))) as connection:
        print("connected", flush=True)
        sys.stdin.readline()
        answers, answered = _Answers(), 0
        began_s, cpu_s = time.perf_counter(), time.process_time()
        connection.sendall(frames)
        while time.perf_counter() - began_s < float(seconds):
            ended = answers.count(connection.recv(_RECEIVE_BYTES))
            answered += ended
            if ended:
                connection.sendall(frames[: ended * len(frame)])
        took_s = time.perf_counter() - began_s
    messages = answered * (PULLED if kind == "pull" else 1)
    print(json.dumps({"messages": messages, "seconds": took_s, "cpu_s": time.process_time() - cpu_s}), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
