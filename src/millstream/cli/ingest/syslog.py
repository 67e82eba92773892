"""`millstream ingest syslog`: syslog messages over UDP, TCP and TLS become messages of a topic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.ingest.shared import IngestOptions, run_gateway, target_of
from millstream.cli.options import CommonOptions
from millstream.cli.printer import print_usage

__all__ = ["ingest_syslog"]

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
