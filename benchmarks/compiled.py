"""The compiled hot modules beside their sources, in turns: nanoseconds of a call, and a server's processor time a call.

Both forms run in processes of their own, which differ in PYTHONPATH alone. The rate of the machine swings, so every
figure is the least of the rounds, and the ratio is the one to read.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate, cycle
from pathlib import Path

__all__ = ["measure_compiled"]

_ROOT = Path(__file__).resolve().parent.parent
_BUILD = _ROOT / "tools" / "build_compiled.py"
_CALLS = 5_000
_REPEATS = 7
_ROUNDS = 3
_BATCH = 64
_SENDS = 60_000
_HZ = os.sysconf("SC_CLK_TCK")
_METHOD = "apache.rocketmq.v2.MessagingService/SendMessage"

_SERVE = """
import asyncio, sys, tempfile
from pathlib import Path
from millstream.broker.broker import Broker
from millstream.model.topic import TopicConfig
from millstream.proxy.grpc.server import GrpcServer
from millstream.proxy.local import LocalBackend
from millstream.proxy.processor import Processor

async def main():
    with tempfile.TemporaryDirectory() as directory:
        broker = Broker(Path(directory))
        await broker.start()
        broker.topics.create(TopicConfig("bench"))
        processor = Processor(LocalBackend(broker))
        await processor.start()
        server = GrpcServer(processor, "127.0.0.1", 0, delivery=broker.delivery)
        print(await server.start(), flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await server.close()
        await processor.close()
        await broker.close()

asyncio.run(main())
"""


def measure_compiled() -> dict[str, object]:
    """For each form: nanoseconds of calls of hot functions, microseconds of the server for a SendMessage of gRPC with
    64 in flight on one connection; and how many times less the compiled form takes."""
    with tempfile.TemporaryDirectory() as scratch:
        built = subprocess.run([sys.executable, str(_BUILD), scratch], capture_output=True, text=True, check=False)
        if built.returncode:
            return {"skipped": built.stderr.strip()}
        forms = {"plain": _ROOT / "src", "compiled": Path(scratch)}
        calls: dict[str, dict[str, float]] = {}
        for _ in range(_ROUNDS):
            for form, directory in forms.items():
                child = [sys.executable, "-m", "benchmarks.compiled"]
                said = subprocess.run(child, env=_environment(directory), stdout=subprocess.PIPE, check=True, cwd=_ROOT)
                for name, taken in json.loads(said.stdout).items():
                    kept = calls.setdefault(name, {})
                    kept[form] = min(kept.get(form, taken), taken)
        rows = {name: _row(taken, "ns") for name, taken in calls.items()}
        return {"calls": rows, "send_64_in_flight": _measure_sends(forms)}


def _environment(directory: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(directory), str(_ROOT))), "MILLSTREAM_PLAIN": "0"}


def _row(taken: dict[str, float], unit: str) -> dict[str, float]:
    plain, compiled = taken["plain"], taken["compiled"]
    return {
        f"plain_{unit}": round(plain, 1),
        f"compiled_{unit}": round(compiled, 1),
        "times_less": round(plain / compiled, 2),
    }


def _measure_sends(forms: dict[str, Path]) -> dict[str, object]:
    if shutil.which("h2load") is None:
        return {"skipped": "there is no h2load"}
    from benchmarks.grpc_load import send_request

    rounds: dict[str, list[float]] = {form: [] for form in forms}
    with ExitStack() as stack, tempfile.NamedTemporaryFile() as request:
        message = send_request("bench").SerializeToString()
        request.write(b"\0" + len(message).to_bytes(4, "big") + message)
        request.flush()
        servers = {form: stack.enter_context(_server(directory)) for form, directory in forms.items()}
        for number in range(_ROUNDS + 1):
            for form, (port, pid) in servers.items():
                before_s = _cpu_s(pid)
                load = ["h2load", "-n", str(_SENDS), "-c", "1", "-m", "64", "-t", "1", "-d", request.name]
                headers = ["-H", "content-type: application/grpc", "-H", "te: trailers", "-H", "x-mq-client-id: bench"]
                url = f"http://127.0.0.1:{port}/{_METHOD}"
                subprocess.run([*load, *headers, url], stdout=subprocess.DEVNULL, check=True)
                # The first round warms up.
                if number:
                    rounds[form].append((_cpu_s(pid) - before_s) / _SENDS * 1e6)
    return _row({form: statistics.median(taken) for form, taken in rounds.items()}, "us")


@contextmanager
def _server(directory: Path) -> Iterator[tuple[int, int]]:
    child = subprocess.Popen(
        [sys.executable, "-c", _SERVE], env=_environment(directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        yield int(child.stdout.readline()), child.pid
    finally:
        child.stdin.close()
        child.wait(30)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _HZ


def _time_ns(call: Callable[[], object], calls: int = _CALLS) -> float:
    # Processor time: other work on the machine does not count.
    least = float("inf")
    for _ in range(_REPEATS):
        began_ns = time.thread_time_ns()
        for _ in range(calls):
            call()
        least = min(least, (time.thread_time_ns() - began_ns) / calls)
    return least


def _measure_calls() -> dict[str, float]:
    """Nanoseconds of one call of each hot function, in the form that this process has."""
    from benchmarks.grpc_load import send_request
    from millstream.broker.remoting.ordinary_sends import read_ordinary_sends
    from millstream.model.handles import ReceiptHandle
    from millstream.model.message import Address, OutgoingMessage
    from millstream.model.operations import PoppedMessage
    from millstream.model.topic import TopicConfig
    from millstream.protocol.grpc import messages as m
    from millstream.protocol.grpc.plain_send import read_plain_send
    from millstream.protocol.http2.connection import Http2Core
    from millstream.protocol.http2.frames import (
        DATA,
        END_HEADERS,
        END_STREAM,
        HEADERS,
        PREFACE,
        frame_header,
        settings_frame,
        window_frame,
    )
    from millstream.protocol.http2.hpack import HeaderDecoder, HeaderEncoder
    from millstream.protocol.http2.request_head import read_request_head
    from millstream.protocol.message_run import decode_run
    from millstream.protocol.record import decode_record, encode_record
    from millstream.protocol.record_encoder import RecordEncoder
    from millstream.protocol.remoting.command import HeaderType, RemotingCommand
    from millstream.protocol.remoting.frame import FrameDecoder, encode_frame
    from millstream.protocol.remoting.messages.sends import SendAnswers
    from millstream.proxy.grpc.message_encoder import MessageEncoder, RunEncoder
    from millstream.store.record_run import is_checked_run

    peer, topic = Address("127.0.0.1", 50312), TopicConfig("bench")
    request = send_request("bench").SerializeToString()
    headers = [
        (":method", "POST"), (":scheme", "http"), (":path", f"/{_METHOD}"), (":authority", "127.0.0.1:8081"),
        ("content-type", "application/grpc"), ("te", "trailers"), ("x-mq-client-id", "bench"),
        ("x-mq-request-id", "0" * 32),
    ]  # fmt: skip
    encoder, decoder = HeaderEncoder(), HeaderDecoder()
    opening = encoder.encode(headers)
    decoder.decode(opening)
    # As clients send them, with an id that differs from call to call.
    blocks = [encoder.encode([*headers[:-1], ("x-mq-request-id", f"{one:032}")]) for one in range(_CALLS)]
    following = cycle(blocks)
    response, trailers = ((":status", "200"), ("content-type", "application/grpc")), (("grpc-status", "0"),)
    core, number = Http2Core(), 1
    begins = frame_header(len(opening), HEADERS, END_HEADERS | END_STREAM, number) + opening
    # The window is what a peer would have granted by the end.
    core.receive(PREFACE + settings_frame(()) + window_frame(0, 1 << 30) + begins, 1.0)
    body = b"\0" + len(request).to_bytes(4, "big") + request
    now_s = 1.0

    def exchange() -> None:
        # 64 requests in one chunk, and their answers.
        nonlocal number, now_s
        chunk = []
        for _ in range(_BATCH):
            number += 2
            block = next(following)
            chunk += [frame_header(len(block), HEADERS, END_HEADERS, number), block]
            chunk += [frame_header(len(body), DATA, END_STREAM, number), body]
        now_s += 1.0
        for stream in core.receive(b"".join(chunk), now_s):
            stream.news = 0
            stream.take_inbox()
            core.send_whole(stream, response, b"x" * 80, trailers)
        core.take_outgoing()
        assert core.failure is None, core.failure

    fields = {
        "a": "bench", "b": "bench", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000005", "h": "0",
        "i": "UNIQ_KEY\x010123456789ABCDEF0000000000000005\x02WAIT\x01true\x02", "j": "0", "k": "false", "l": "0",
        "m": "false",
    }  # fmt: skip

    def frames_of(kind: HeaderType) -> bytes:
        commands = [RemotingCommand(310, dict(fields), b"x" * 100, one, header_type=kind) for one in range(_BATCH)]
        return b"".join([b"".join(encode_frame(command)) for command in commands])

    json_frames, binary_frames, remoting = frames_of(HeaderType.JSON), frames_of(HeaderType.BINARY), FrameDecoder()
    commands = list(remoting.feed(json_frames))
    answers = SendAnswers("7F00000100002A9F")
    record = encode_record(
        OutgoingMessage("bench", b"x" * 100, {"UNIQ_KEY": "0" * 32, "PGROUP": "bench", "BORN_TIMESTAMP": "1"}),
        queue_id=1, queue_offset=20_000, log_offset=1 << 30, store_timestamp_ms=1_700_000_000_005, store_host=peer,
    )  # fmt: skip
    stored, message_encoder = decode_record(record), MessageEncoder(m.Resource(name="bench"))
    popped = PoppedMessage(stored, ReceiptHandle(0, 1, 2, 3, 0, "broker-a", 1, 20_000, 1 << 30), 1)
    batches = _CALLS // _BATCH
    sends, writer = read_ordinary_sends(commands, 0, topic, peer), RecordEncoder(1_700_000_000_005, peer)
    for number, send in enumerate(sends):
        send.queue_offset, send.log_offset = 1_000 + number, 100_000 + 200 * number
    records, end = [], 1 << 30
    for number, send in enumerate(sends):
        records.append(writer.encode_plain(send, 20_000 + number, end))
        end += len(records[-1])
    run, ends = b"".join(records), list(accumulate(map(len, records), initial=1 << 30))
    stands = [(ends[number], len(one), 0) for number, one in enumerate(records)]
    run_encoder = RunEncoder("bench", "broker-a")
    assert run_encoder.encode(run, stands, 1, 20_000, 1_700_000_000_009, 30_000) is not None
    return {
        "read_plain_send": _time_ns(lambda: read_plain_send(request)),
        "decode_headers": _time_ns(lambda: decoder.decode(next(following))),
        "read_request_head": _time_ns(lambda: read_request_head(headers)),
        "http2_call": _time_ns(exchange, batches) / _BATCH,
        "json_request": _time_ns(lambda: list(remoting.feed_runs(json_frames)), batches) / _BATCH,
        "binary_request": _time_ns(lambda: list(remoting.feed(binary_frames)), batches) / _BATCH,
        "ordinary_send": _time_ns(lambda: read_ordinary_sends(commands, 0, topic, peer), batches) / _BATCH,
        "plain_record": _time_ns(lambda: [writer.encode_plain(send, 20_000, 1 << 30) for send in sends], batches)
        / _BATCH,
        "checked_record": _time_ns(lambda: is_checked_run(run, stands, 20_000), batches) / _BATCH,
        "decoded_record": _time_ns(lambda: decode_run(run, stands), batches) / _BATCH,
        "delivered_record": _time_ns(
            lambda: run_encoder.encode(run, stands, 1, 20_000, 1_700_000_000_009, 30_000), batches
        )
        / _BATCH,
        "send_answer": _time_ns(lambda: answers.frames(sends), batches) / _BATCH,
        "delivered_message": _time_ns(lambda: message_encoder.frame(popped)),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_measure_calls()))
