"""The description of the port and the port say the same."""

from __future__ import annotations

import re

from http_ground import HttpGround


async def test_every_path_and_method_that_is_described_is_answered_and_no_other(memory: HttpGround) -> None:
    described = (await memory.client.get("/v1/openapi.json")).json()["paths"]
    for path, methods in described.items():
        real = re.sub(r"\{[A-Z]+\}", "x", path)
        answer = await memory.client.request("PATCH", real)
        assert answer.status_code == 405, path
        allowed = {method.lower() for method in answer.headers["allow"].split(", ")}
        assert allowed == methods.keys(), path
