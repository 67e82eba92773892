"""README's five minutes, command by command as they stand there, against a server of the test's own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from patience import PATIENCE_S

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.timeout(20 * PATIENCE_S)]

README = Path(__file__).parent.parent.parent / "README.md"

FREE_PORTS = "--grpc-port 0 --remoting-port 0 --nameserver-port 0 --metrics-port off"


def commands() -> list[str]:
    """The lines of the section's first block, as a reader copies them."""
    section = README.read_text().split("## Five minutes by hand", 1)[1]
    block = re.search(r"```\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return block[1].splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a .venv/bin/millstream that takes free ports: those of the README may be in use here."""
    program = tmp_path / ".venv" / "bin" / "millstream"
    program.parent.mkdir(parents=True)
    run = f"exec {shlex.quote(sys.executable)} -m millstream"
    program.write_text(f'#!/bin/sh\n[ "$1" != quickstart ] || {run} "$@" {FREE_PORTS}\n{run} "$@"\n')
    program.chmod(0o755)
    return tmp_path


@contextmanager
def running(command: str, directory: Path) -> Iterator[str]:
    """The server of the command; gives the address of its nameserver."""
    with subprocess.Popen(["sh", "-c", f"exec {command}"], cwd=directory, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            lines = []
            for line in server.stdout:
                lines.append(line)
                if line.startswith("ready"):
                    break
            yield next(line.split()[1] for line in lines if line.strip().startswith("nameserver"))
        finally:
            server.terminate()


def shell(command: str, place: Path, nameserver: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the README as a shell does, against that server."""
    return subprocess.run(
        ["sh", "-c", command],
        cwd=place,
        env={**os.environ, "MILLSTREAM_NAMESERVER": nameserver},
        capture_output=True,
        text=True,
        timeout=15 * PATIENCE_S,
    )


def test_the_five_minutes_end_in_the_row_that_they_promise(place: Path) -> None:
    first, *others = commands()
    with running(first, place) as nameserver:
        said = []
        for command in others:
            done = shell(command, place, nameserver)
            assert done.returncode == 0, (command, done.stderr)
            said.append(done.stdout.strip())
    # In a pipe a row of SQL has its query's label before it.
    assert said[-2:] == ["first message", "result\tfirst message"]


def test_messages_that_do_not_fit_the_format_are_told_with_reason_and_remedy(place: Path) -> None:
    first, create, produce, _, query = commands()
    with running(first, place) as nameserver:
        for command in (create, produce, query.replace("'raw'", "'json'")):
            done = shell(command, place, nameserver)
    assert done.stdout == ""
    assert "malformed 1" in done.stderr
    assert "No row of hello fits the table hello; the first is refused: JSON is malformed" in done.stderr
    assert "'format' = 'raw'. See one: millstream consume hello --count 1." in done.stderr
