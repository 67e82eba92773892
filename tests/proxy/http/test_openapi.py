"""The description of the port and the port say the same."""

from __future__ import annotations

import re
from typing import Any

from http_ground import HttpGround, memory_ground

SAMPLES = {
    "priority": "1",
    "delay": "10m",
    "deliverat": "2030-01-01T00:00:00Z",
    "from": "earliest",
    "max": "32",
    "wait": "0s",
    "invisible": "30s",
    "max_in_flight": "10",
    "sql": "a = 1",
}
"""Values that can be read, of the parameters for which not every text will do."""


async def described_paths(ground: HttpGround) -> dict[str, dict[str, dict[str, Any]]]:
    paths: dict[str, dict[str, dict[str, Any]]] = (await ground.client.get("/v1/openapi.json")).json()["paths"]
    return paths


def shape_of(path: str) -> str:
    return re.sub(r"\{[A-Z]+\}", "*", path)


async def test_every_route_is_described_with_its_methods_and_no_other(memory: HttpGround) -> None:
    described = {shape_of(path): methods.keys() for path, methods in (await described_paths(memory)).items()}
    routes = memory.server._application.routes
    assert described == {path: {method.lower() for method in methods} for path, methods in routes.items()}


async def test_every_path_and_method_that_is_described_is_answered_and_no_other(memory: HttpGround) -> None:
    for path, methods in (await described_paths(memory)).items():
        answer = await memory.client.request("PATCH", shape_of(path).replace("*", "x"))
        assert answer.status_code == 405, path
        allowed = {method.lower() for method in answer.headers["allow"].split(", ")}
        assert allowed == methods.keys(), path


async def test_every_name_of_a_path_is_described(memory: HttpGround) -> None:
    for path, methods in (await described_paths(memory)).items():
        for operation in methods.values():
            named = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
            assert named == re.findall(r"\{([A-Z]+)\}", path)


async def test_every_parameter_that_is_described_is_known_and_no_other() -> None:
    async with memory_ground() as ground:
        for path, methods in (await described_paths(ground)).items():
            for method, operation in methods.items():
                names = [one["name"] for one in operation["parameters"] if one["in"] == "query"]
                real = shape_of(path).replace("*", "none")
                for name in (*names, "unheard"):
                    query = {name: SAMPLES.get(name, "x")}
                    async with ground.client.stream(method.upper(), real, params=query) as answer:
                        body = await answer.aread() if answer.status_code >= 400 else b""
                    if name == "unheard":
                        # Who only looks whether the port answers may add what it likes.
                        assert answer.status_code >= 400 or path == "/health", (method, path)
                    else:
                        assert b"unknown parameter" not in body, (method, path, name, body)


async def test_what_needs_no_user_is_described_so(memory: HttpGround) -> None:
    described = await described_paths(memory)
    for path, methods in memory.server._application.routes.items():
        [operations] = [found for one, found in described.items() if shape_of(one) == path]
        for method, route in methods.items():
            assert (operations[method.lower()].get("security") == [{}]) is route.is_open, (method, path)
