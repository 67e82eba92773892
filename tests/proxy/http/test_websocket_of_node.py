"""The WebSocket of Node.js, as browsers have it, runs the script of docs/http.md."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from http_ground import http_ground

from patience import within_patience

PAGE = Path(__file__).parents[3] / "docs" / "http.md"
ENDING = """
let settled = 0;
socket.addEventListener("message", ({data}) => {
  settled += (JSON.parse(data).results ?? []).filter((one) => !one.error).length;
  if (settled === 3) socket.close(1000);
});
socket.onclose = ({code, wasClean}) => console.log("closed", code, wasClean);
"""


def node_with_websocket() -> list[str]:
    """How Node.js is started so that it has a WebSocket."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for options in ([], ["--experimental-websocket"]):
        command = ["node", *options, "-e", "process.exit(typeof WebSocket === 'function' ? 0 : 1)"]
        if subprocess.run(command, capture_output=True, timeout=60).returncode == 0:
            return command[:-2]
    pytest.skip("this version of node has no WebSocket")


@pytest.mark.official
async def test_the_script_of_the_page_receives_and_acknowledges(tmp_path: Path) -> None:
    command = node_with_websocket()
    [script] = re.findall(r"^```js\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    async with http_ground(tmp_path) as ground:
        for number in range(3):
            headers = {"ce-specversion": "1.0", "ce-id": f"e{number}", "ce-source": "/s", "ce-type": "t"}
            headers["content-type"] = "application/json"
            await ground.client.post(
                "/v1/topics/orders/messages", headers=headers, content=b'{"n": "' + b"x" * 90_000 + b'"}'
            )
        whole = script.replace("127.0.0.1:8082", f"127.0.0.1:{ground.port}") + ENDING
        node = await asyncio.create_subprocess_exec(
            *command, "-e", whole, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        out, _ = await within_patience(node.communicate())
        lines = [line for line in out.decode().splitlines() if line.startswith(("e", "closed"))]
        assert sorted(lines) == ["closed 1000 true", "e0", "e1", "e2"], out.decode()
        assert await ground.receive(group="billing", wait="0s") == []
