"""Programs that are forked instead of started: what they see, how they end, and what runs where nobody forks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.streams.spark.runtime import fork_request

pytestmark = pytest.mark.process


REQUEST = [sys.executable, "-I", "-S", fork_request.__file__]
LIMIT_S = 120
SERVER = """
import os, sys, time
from pathlib import Path
import json.tool  # What the programs need not import.
from millstream.streams.spark.runtime.source_forks import start_forks
start_forks(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""
PROGRAM = """
import os, sys
print(sys.stdin.read(), sys.argv[1:], os.getcwd(), os.environ["WORD"], "json.tool" in sys.modules, __name__)
print(os.getpid(), os.getppid(), file=sys.stderr)
"""
WAITING = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b"told\\n"), os._exit(3)))
print("waits", flush=True)
time.sleep(600)
"""


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "waiting.py").write_text(WAITING)
    (tmp_path / "failing.py").write_text("raise ValueError('it failed')")
    return tmp_path


@pytest.fixture
def variables(modules: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(modules), *sys.path[1:]]), "WORD": "before"}


@pytest.fixture
def server(modules: Path, variables: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(modules / "forks")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def asked(modules: Path, variables: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [*REQUEST, str(modules / "forks"), "-m", *words]
    return subprocess.run(
        command, input="said", capture_output=True, text=True, env=variables, cwd=modules, timeout=LIMIT_S
    )


@pytest.mark.usefixtures("server")
def test_a_forked_program_has_its_own_streams_words_place_and_environment(
    modules: Path, variables: dict[str, str]
) -> None:
    for word in ("one", "two"):
        done = asked(modules, {**variables, "WORD": word}, "program", "a", "b c")
        assert done.stdout == f"said ['a', 'b c'] {modules} {word} True __main__\n"
        assert done.stderr


@pytest.mark.usefixtures("server")
def test_a_program_that_fails_says_so_and_the_next_one_is_forked(modules: Path, variables: dict[str, str]) -> None:
    assert "ValueError: it failed" in asked(modules, variables, "failing").stderr
    assert "True __main__" in asked(modules, variables, "program").stdout


@pytest.mark.usefixtures("server")
def test_who_is_told_to_end_tells_the_program_and_ends_after_it(modules: Path, variables: dict[str, str]) -> None:
    with subprocess.Popen(
        [*REQUEST, str(modules / "forks"), "-m", "waiting"],
        stdout=subprocess.PIPE,
        text=True,
        env=variables,
        cwd=modules,
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "waits\n"
        waiting.terminate()
        assert waiting.communicate(timeout=LIMIT_S)[0] == "told\n"
        assert waiting.returncode == 0


@pytest.mark.usefixtures("server")
def test_a_program_with_another_path_of_modules_is_started_by_itself(modules: Path, variables: dict[str, str]) -> None:
    other = {**variables, "PYTHONPATH": f"{modules}{os.pathsep}/nowhere"}
    assert asked(modules, other, "program").stdout == f"said [] {modules} before False __main__\n"


def test_a_program_is_started_by_itself_where_nobody_forks(
    modules: Path, variables: dict[str, str], server: subprocess.Popen[str]
) -> None:
    server.communicate(timeout=LIMIT_S)
    until_s = time.monotonic() + LIMIT_S
    while can_connect(modules / "forks"):
        assert time.monotonic() < until_s, "it outlives the process that it was forked from"
        time.sleep(0.05)
    assert asked(modules, variables, "program").stdout == f"said [] {modules} before False __main__\n"


def can_connect(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(path)) == 0


def test_a_place_that_is_no_place_for_a_socket_is_no_error(tmp_path: Path, variables: dict[str, str]) -> None:
    command = [sys.executable, "-c", SERVER, str(tmp_path / ("long" * 40))]
    done = subprocess.run(command, input="", capture_output=True, text=True, env=variables, timeout=LIMIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
