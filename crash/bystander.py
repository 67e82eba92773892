"""A client that does nothing wrong, in its own process beside an attack: `python -m crash.bystander GRPC DIRECTORY`.

It sends to its own topic, receives and acknowledges, and writes a history; the end of its standard input ends it, after
what it sent has come.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import zlib
from pathlib import Path
from types import TracebackType

import grpc
import grpc.aio

from crash.checker import check_history
from crash.history import Event, HistoryWriter, read_history
from crash.programme import ProgrammeRun
from millstream.protocol.grpc import messages as m
from millstream.protocol.grpc.service import METHODS

__all__ = ["BESIDE", "Bystander"]

BESIDE = "beside"
"""Its topic and group."""

PAUSE_S = 0.02
SETTLE_S = 20.0
LATE_S = 10.0
"""From a send to its delivery at most, on a machine that has other things to do."""

_METADATA = (("x-mq-client-id", "beside@1@0@a"),)


class Bystander:
    """Runs from the constructor on; leaving the block ends it. `judge` says whether it was harmed."""

    def __init__(self, address: str, histories: Path) -> None:
        self._histories = histories
        command = [sys.executable, "-m", "crash.bystander", address, str(histories)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def __enter__(self) -> Bystander:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def judge(self, run: ProgrammeRun) -> None:
        """Note what it lost, got twice or got late."""
        events = read_history(self._histories)
        verdict = check_history(events, stuck_after_s=LATE_S, is_drained=True)
        for broken in verdict.broken():
            run.fail(f"beside the attack: {broken}")
        if verdict.duplicates or verdict.unknown or self._process.returncode:
            run.fail(
                f"beside the attack {verdict.duplicates} messages came twice, of {verdict.unknown} nobody knows; "
                f"exit code {self._process.returncode}"
            )
        late_s = sorted(_latencies_s(events))
        if not late_s:
            run.fail("nothing was sent beside the attack, so nothing was tested")
            return
        if late_s[-1] > LATE_S:
            run.fail(f"beside the attack a message came after {late_s[-1]:.1f} s")
        run.counts |= {
            "beside": len(late_s),
            "beside_p50_ms": round(late_s[len(late_s) // 2] * 1000),
            "beside_p99_ms": round(late_s[len(late_s) * 99 // 100] * 1000),
        }


def _latencies_s(events: list[Event]) -> list[float]:
    begun_s = {event.message: event.at_s for event in events if event.kind == "invoke"}
    return [event.at_s - begun_s[event.message] for event in events if event.kind == "delivered"]


class _Client:
    def __init__(self, address: str, histories: Path) -> None:
        self._channel = grpc.aio.insecure_channel(address)
        self._sent = HistoryWriter(histories, "beside-producer")
        self._got = HistoryWriter(histories, "beside-consumer")
        self._open: set[str] = set()
        self.is_ending = False

    async def produce(self) -> None:
        send, number = METHODS["SendMessage"].stub(self._channel), 0
        while not self.is_ending:
            number += 1
            name = f"m{number}"
            body = name.encode() * 20
            system = m.SystemProperties(message_id=name, body_encoding=m.IDENTITY)
            message = m.Message(topic=m.Resource(name=BESIDE), body=body, system_properties=system)
            self._sent.write("invoke", name, checksum=zlib.crc32(body))
            self._open.add(name)
            try:
                answer = await send(m.SendMessageRequest(messages=[message]), metadata=_METADATA, timeout=10)
            except grpc.aio.AioRpcError as error:
                self._sent.write("unknown", name)
                sys.stderr.write(f"beside the attack: {error.details()}\n")
            else:
                self._sent.write("ok" if answer.status.code == m.OK else "fail", name)
                if answer.status.code != m.OK:
                    self._open.discard(name)
                    sys.stderr.write(f"beside the attack: {answer.status.message}\n")
            await asyncio.sleep(PAUSE_S)

    async def consume(self) -> None:
        receive, ack = (METHODS[name].stub(self._channel) for name in ("ReceiveMessage", "AckMessage"))
        own = m.Resource(name=BESIDE)
        wish = m.ReceiveMessageRequest(
            group=own,
            message_queue=m.MessageQueue(topic=own, id=-1),
            batch_size=32,
            invisible_duration=m.Duration(seconds=60),
            long_polling_timeout=m.Duration(seconds=1),
        )
        quiet_since_s = time.monotonic()
        while not self.is_ending or (self._open and time.monotonic() - quiet_since_s < SETTLE_S):
            async for frame in receive(wish, metadata=_METADATA, timeout=20):
                if frame.WhichOneof("content") != "message":
                    continue
                quiet_since_s = time.monotonic()
                name = frame.message.system_properties.message_id
                self._got.write("delivered", name, checksum=zlib.crc32(frame.message.body))
                self._open.discard(name)
                entry = m.AckMessageEntry(receipt_handle=frame.message.system_properties.receipt_handle)
                self._got.write("ack", name)
                answer = await ack(
                    m.AckMessageRequest(group=own, topic=own, entries=[entry]), metadata=_METADATA, timeout=10
                )
                if answer.status.code == m.OK:
                    self._got.write("acked", name)


async def main(address: str, histories: Path) -> None:
    """Send and receive until standard input ends."""
    client = _Client(address, histories)
    working = asyncio.gather(client.produce(), client.consume())
    await asyncio.to_thread(sys.stdin.read)
    client.is_ending = True
    await working


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
