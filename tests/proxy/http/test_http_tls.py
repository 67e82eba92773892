"""TLS and plaintext on one HTTP port, told by the first byte."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from certificates import identity_in, needs_openssl, trusting
from millstream.proxy.http.answer import Receive, Send, json_answer
from millstream.security.tls import TlsMode
from millstream.transport.http_port import AsgiPort

pytestmark = needs_openssl


async def say_scheme(scope: dict[str, str], receive: Receive, send: Send) -> None:
    await json_answer(scope["scheme"]).write(send)


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.REQUIRED])
async def test_tls_is_answered_and_plaintext_where_it_may_be(tmp_path: Path, mode: TlsMode) -> None:
    identity, files = identity_in(tmp_path)
    port = AsgiPort(say_scheme, tls=(identity, mode))
    number = await port.start()
    try:
        async with httpx.AsyncClient(verify=trusting(files), timeout=60.0) as client:
            assert (await client.get(f"https://localhost:{number}/")).json() == "https"
            if mode is TlsMode.PERMISSIVE:
                assert (await client.get(f"http://localhost:{number}/")).json() == "http"
            else:
                with pytest.raises(httpx.TransportError):
                    await client.get(f"http://localhost:{number}/")
    finally:
        await port.close(0.0)
