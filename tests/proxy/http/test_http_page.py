"""The commands of docs/http.md, run one after the other as a reader would."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest
from http_ground import http_ground
from webhooks.scripted_sink import running_sink

PAGE = Path(__file__).parents[3] / "docs" / "http.md"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    async with running_sink() as sink, http_ground(tmp_path, webhook_networks=["127.0.0.0/8"]) as ground:
        places = {"127.0.0.1:8082": f"127.0.0.1:{ground.port}", "127.0.0.1:9000": f"127.0.0.1:{sink.port}"}
        said = []
        for block in blocks:
            for written, real in places.items():
                block = block.replace(written, real)
            shell = await asyncio.create_subprocess_exec(
                "bash", "-ec", block, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
            )
            out, _ = await shell.communicate()
            assert shell.returncode == 0, (block, out)
            said.append(out.decode())
        assert said[1].count('"offset"') == 3
        assert '"attempt":1' in said[3]
        assert "data: {" in said[4]
        assert '"hook-billing"' in said[5]
        posted = [await sink.next_event() for _ in range(2)]
        assert {event.headers["ce-source"] for event in posted} == {"/shop"}
        assert posted[0].headers["authorization"] == "Bearer x"
