"""A process that has imported the commands and forks itself for each: to start Python anew takes half a second.

As a program it reads one order a line and answers each with the command's exit code.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

LIMIT_S = 180
"""A command that takes longer is killed."""

_STREAMS = ("in", "out", "err")


class CommandForks:
    """The process, which ends with this one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, arguments: Sequence[str], stdin: str) -> tuple[int, str, str]:
        """The exit code, the output and the errors of `python -m millstream` with these arguments."""
        orders, answers = self._process.stdin, self._process.stdout
        assert orders is not None
        assert answers is not None
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "in").write_text(stdin)
            order = {"words": arguments, "folder": folder, "place": str(Path.cwd()), "variables": dict(os.environ)}
            orders.write(json.dumps(order) + "\n")
            orders.flush()
            code = int(answers.readline())
            return code, (Path(folder) / "out").read_text(), (Path(folder) / "err").read_text()


def _become(words: list[str], folder: str, place: str, variables: dict[str, str]) -> None:
    """Be the command, with files for the standard streams."""
    signal.alarm(LIMIT_S)
    for number, name in enumerate(_STREAMS):
        opened = os.open(Path(folder) / name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    # What Python made of them belongs to the process that forked.
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    os.chdir(place)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv, sys.path[0] = ["millstream", *words], place
    runpy.run_module("millstream", run_name="__main__", alter_sys=True)


def _serve() -> None:
    from millstream.cli.main import _load, app

    _load(app)
    # By its number: a command must not see what is buffered here.
    orders = os.fdopen(os.dup(0), "rb", buffering=0)
    while line := orders.readline():
        child = os.fork()
        if child == 0:
            orders.close()
            _become(**json.loads(line))
            return
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(1, b"%d\n" % code)


if __name__ == "__main__":
    _serve()
