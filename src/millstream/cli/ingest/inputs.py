"""`millstream ingest file`, `http` and `syslog`: lines, posts and syslog messages become messages of a topic."""

from __future__ import annotations

import codecs
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.ingest.shared import IngestOptions, run_gateway, state_directory, target_of
from millstream.cli.options import CommonOptions
from millstream.cli.printer import print_usage

if TYPE_CHECKING:
    from millstream.ingest.files.lines import MultilineRule

__all__ = ["TOKEN_VARIABLE", "ingest_file", "ingest_http", "ingest_syslog"]


def ingest_file(
    topic: str,
    /,
    *path: str,
    begin: Annotated[Literal["beginning", "end"], Parameter(name="--from")] = "beginning",
    once: Annotated[bool, Parameter(negative="")] = False,
    directory: Annotated[Path | None, Parameter(name="--dir")] = None,
    encoding: str = "utf-8",
    event_start: str | None = None,
    event_continues: str | None = None,
    max_line_bytes: Annotated[int, Parameter(validator=Number(gte=16, lte=3 * 1024 * 1024))] = 1024 * 1024,
    oversized: Literal["cut", "dead-letter", "drop"] = "cut",
    given: IngestOptions = IngestOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Send the lines of files as messages, and follow the files until Ctrl-C.

    Examples: millstream ingest file logs "/var/log/app/*.log" --bulk;
    millstream ingest file old-logs "archive/*.gz" --once;
    millstream ingest file logs app.log --event-start "^[0-9]{4}-".

    Parameters
    ----------
    topic
        The topic, which must exist.
    path
        Files, or patterns with *, ?, [] and ** (in quotes). Names that end with .gz or .zst are unpacked.
    begin
        Where to start in files that are there at the first start; those that come later are read from the beginning.
    once
        End at the end of the files.
    directory
        Where the offsets are kept, by one process at a time. Default: ~/.local/state/millstream/ingest/TOPIC.
    encoding
        How the files are written, by Python's names; messages are UTF-8.
    event_start
        Regular expression; a line that matches begins an event, the others go on with it.
    event_continues
        Regular expression; a line that matches goes on with the event before it.
    max_line_bytes
        Bytes of a line or event beyond which it is cut.
    oversized
        What becomes of longer ones: cut sends their beginning with the property cut-from-bytes, dead-letter sends
        that to --dead-letters, drop counts them.
    """
    from millstream.ingest.files.input import FileInput, FileOptions, Oversized
    from millstream.ingest.files.tail import TailOptions
    from millstream.ingest.files.watch import WatchOptions
    from millstream.ingest.gateway import InputPlan

    if not path:
        return print_usage("Name at least one file or pattern.")
    if oversized == "dead-letter" and given.dead_letters is None:
        return print_usage("--oversized dead-letter needs --dead-letters TOPIC.")
    try:
        joining = _joining(event_start, event_continues)
        codec = codecs.lookup(encoding).name
    except (ValueError, LookupError) as error:
        return print_usage(str(error) if isinstance(error, ValueError) else f"--encoding: there is no {encoding!r}.")
    patterns = [os.path.abspath(os.path.expanduser(one)) for one in path]
    tail = TailOptions(codec, joining, max_line_bytes=max_line_bytes)
    options = FileOptions(
        WatchOptions(patterns, tail, from_end=begin == "end"),
        directory or state_directory(topic),
        once=once,
        oversized=Oversized(oversized),
    )
    plan = InputPlan(
        lambda outlet, tally, say: FileInput(options, outlet, tally, say), target_of(topic, given), given.bulk
    )
    return run_gateway([plan], given, common)


def _joining(first: str | None, more: str | None) -> MultilineRule | None:
    """What joins lines to events; ValueError where it cannot be read or is said twice."""
    from millstream.ingest.files.lines import MultilineRule

    if first is not None and more is not None:
        raise ValueError("Give --event-start or --event-continues, not both.")
    try:
        if first is not None:
            return MultilineRule(first=re.compile(first.encode()))
        return MultilineRule(more=re.compile(more.encode())) if more is not None else None
    except re.error as error:
        name = "--event-start" if first is not None else "--event-continues"
        raise ValueError(f"{name} is no regular expression: {error}.") from None


TOKEN_VARIABLE = "MILLSTREAM_INGEST_TOKEN"
"""The environment's variable with the token that clients have to send."""


def ingest_http(
    topic: str,
    /,
    *,
    port: Annotated[int, Parameter(validator=Number(gte=0, lte=65_535))] = 8088,
    host: str = "127.0.0.1",
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    max_post_mb: Annotated[int, Parameter(validator=Number(gte=1, lte=256))] = 16,
    given: IngestOptions = IngestOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Accept posts of JSON, NDJSON, plain lines and CloudEvents until Ctrl-C; 200 means that the broker has them.

    With MILLSTREAM_INGEST_TOKEN in the environment, clients send it as Authorization: Bearer TOKEN.

    Examples: millstream ingest http events --port 8088;
    curl -H "Content-Type: application/json" -d '{"id": 1}' http://127.0.0.1:8088/.

    Parameters
    ----------
    topic
        The topic, which must exist.
    port
        Port to listen on; 0 takes a free one.
    host
        Address to listen on.
    tls_cert
        Certificate chain in PEM: HTTPS. SIGHUP has it read again.
    tls_key
        Its key in PEM.
    max_post_mb
        MB of one post at most, packed and unpacked.
    """
    from millstream.ingest.gateway import InputPlan
    from millstream.ingest.http.input import HttpInput, HttpOptions
    from millstream.security.tls import TlsFiles

    if (tls_cert is None) != (tls_key is None):
        return print_usage("HTTPS needs both --tls-cert FILE and --tls-key FILE.")
    files = TlsFiles(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    options = HttpOptions(host, port, os.environ.get(TOKEN_VARIABLE) or None, files, max_post_mb * 1024 * 1024)
    plan = InputPlan(
        lambda outlet, tally, say: HttpInput(options, outlet, tally, say), target_of(topic, given), given.bulk
    )
    return run_gateway([plan], given, common, has_tls=files is not None)


_PORT = Parameter(validator=Number(gte=0, lte=65_535))


def ingest_syslog(
    topic: str,
    /,
    *,
    udp: Annotated[int | None, _PORT] = None,
    tcp: Annotated[int | None, _PORT] = None,
    tls: Annotated[int | None, _PORT] = None,
    host: str = "0.0.0.0",
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    format: Literal["json", "raw"] = "json",
    max_message_bytes: Annotated[int, Parameter(validator=Number(gte=480, lte=3 * 1024 * 1024))] = 64 * 1024,
    given: IngestOptions = IngestOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Listen for syslog (RFC 5424 and RFC 3164) until Ctrl-C. The property peer names the sender's address.

    Examples: millstream ingest syslog logs --udp 5514 --tcp 5514;
    millstream ingest syslog logs --tls 6514 --tls-cert cert.pem --tls-key key.pem.

    Parameters
    ----------
    topic
        The topic, which must exist.
    udp
        Port for datagrams; 0 takes a free one.
    tcp
        Port for connections, framed by octet counts or line feeds; 0 takes a free one.
    tls
        Port for connections by TLS; 0 takes a free one. SIGHUP has the certificate read again.
    host
        Address to listen on.
    tls_cert
        Certificate chain in PEM, for --tls.
    tls_key
        Its key in PEM.
    format
        json splits messages into fields, raw sends them as they come.
    max_message_bytes
        Bytes of a message beyond which it is cut, with the property cut-from-bytes.
    """
    from millstream.ingest.gateway import InputPlan
    from millstream.ingest.syslog.input import SyslogInput, SyslogOptions
    from millstream.security.tls import TlsFiles

    if udp is None and tcp is None and tls is None:
        return print_usage("Name at least one port: --udp, --tcp or --tls.")
    if tls is not None and (tls_cert is None or tls_key is None):
        return print_usage("--tls needs --tls-cert FILE and --tls-key FILE.")
    files = TlsFiles(tls_cert, tls_key) if tls is not None and tls_cert and tls_key else None
    options = SyslogOptions(host, udp, tcp, tls, files, format == "raw", max_message_bytes)
    plan = InputPlan(
        lambda outlet, tally, say: SyslogInput(options, outlet, tally, say), target_of(topic, given), given.bulk
    )
    return run_gateway([plan], given, common, has_tls=files is not None)
