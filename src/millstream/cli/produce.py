"""`millstream produce`: send messages from the command line or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.options import Common, ExitCode
from millstream.cli.printer import Printer, print_error
from millstream.client.blocking import BlockingClient
from millstream.client.values import Sent
from millstream.model.errors import MessageRefused, Refused
from millstream.model.message import MAX_BODY_BYTES, Message

__all__ = ["produce"]

_LINES_PER_CALL = 1000
"""Lines of standard input that are sent together at most."""


def produce(
    topic: str,
    body: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    *,
    tag: str | None = None,
    key: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    property: Annotated[dict[str, str] | None, Parameter(name=["--property", "-p"])] = None,
    repeat: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000_000))] = 1,
    common: Common = Common(),
) -> int:
    """Send one message, or one per line of standard input.

    Parameters
    ----------
    topic
        The topic, which must exist.
    body
        The message; - or none reads lines from standard input (empty lines are passed over).
    tag
        The tag that consumers can filter by.
    key
        A key to find the message by; may be given several times.
    property
        A property of your own: --property.NAME VALUE; may be given several times.
    repeat
        Send the message so many times.
    """
    if body is None and sys.stdin.isatty():
        print("error: give a BODY, or - to send the lines of standard input.", file=sys.stderr)
        return ExitCode.USAGE
    from_lines = body is None or body == "-"
    texts = _lines() if from_lines else iter([str(body)] * repeat)
    printer = Printer(common.output)
    sent_count = refused_count = 0
    with BlockingClient(common.nameserver, timeout_s=common.timeout_s) as client:
        while batch := list(islice(texts, _LINES_PER_CALL)):
            messages = [Message(topic, text.encode(), tag, key, None, dict(property or {})) for text in batch]
            if from_lines:
                accepted = [message for message in messages if not _is_too_large(message)]
                refused_count += len(messages) - len(accepted)
                messages = accepted
            try:
                receipts = client.send_many(messages)
            except Refused as refused:
                if not sent_count:
                    raise
                # What was sent before stays sent, and the exit code has to say so.
                print_error(refused)
                refused_count += len(messages)
                break
            sent_count += len(receipts)
            for receipt in receipts if len(receipts) == 1 or printer.format == "json" else ():
                _show(printer, topic, receipt)
    if sent_count != 1 and printer.format != "json":
        print(f"sent {sent_count:,} messages to {topic}", file=sys.stderr)
    if refused_count:
        print(f"{refused_count:,} messages were not sent", file=sys.stderr)
        return ExitCode.PARTLY_DONE if sent_count else ExitCode.REFUSED
    return ExitCode.DONE


def _lines() -> Iterator[str]:
    return (line.rstrip("\r\n") for line in sys.stdin if line.strip())


def _is_too_large(message: Message) -> bool:
    """Whether a line is over the limit, which is said; the lines around it are sent all the same."""
    if len(message.body) <= MAX_BODY_BYTES:
        return False
    words = f"A line of {len(message.body):,} bytes is over the limit of {MAX_BODY_BYTES:,}."
    print_error(MessageRefused("BODY_TOO_LARGE", words))
    return True


def _show(printer: Printer, topic: str, receipt: Sent) -> None:
    printer.record(
        {
            "message_id": receipt.message_id,
            "topic": topic,
            "broker": receipt.queue.broker_name,
            "queue": receipt.queue.queue_id,
            "offset": receipt.queue_offset,
        },
        sentence=f"sent {receipt.message_id} to {topic}, queue {receipt.queue.queue_id}, offset {receipt.queue_offset}",
    )
