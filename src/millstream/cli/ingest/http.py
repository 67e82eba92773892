"""`millstream ingest http`: events that are posted become messages of a topic."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from millstream.cli.ingest.shared import IngestOptions, run_gateway, target_of
from millstream.cli.options import CommonOptions
from millstream.cli.printer import print_usage

__all__ = ["TOKEN_VARIABLE", "ingest_http"]

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
