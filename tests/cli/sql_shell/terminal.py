"""The real command on a terminal of its own."""

from __future__ import annotations

import math
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Terminal", "terminal"]

_LONGEST_WAIT_S = 400.0
"""A Spark start on a busy machine fits; a test that passes never waits so long."""
_PRESSED_AGAIN_S = 5.0

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|\r")


class Terminal:
    """What a person does at a terminal: type, and wait for words."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self.text = ""

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, words: str, *, pressing: str | None = None) -> str:
        """What was shown up to these words, which are not found again.

        With `pressing`, that key is typed, and again every 5 s until the words come: a Ctrl-C that comes between two
        reads of the terminal is taken with the next key only, as CPython's readline waits without a look at signals.
        """
        deadline_s = time.monotonic() + _LONGEST_WAIT_S
        pressed_s = -math.inf
        while words not in self.text:
            assert time.monotonic() < deadline_s, f"{words!r} did not come in:\n{self.text}"
            if pressing is not None and time.monotonic() - pressed_s > _PRESSED_AGAIN_S:
                self.type(pressing)
                pressed_s = time.monotonic()
            ready, _, _ = select.select([self._master], [], [], 1.0)
            if ready:
                try:
                    read = os.read(self._master, 65_536)
                except OSError:
                    read = b""
                assert read, f"{words!r} did not come before the end of:\n{self.text}"
                self.text += _ESCAPES.sub("", read.decode("utf-8", "replace"))
        shown, _, self.text = self.text.partition(words)
        return shown + words

    def exit_code(self) -> int:
        return self.process.wait(_LONGEST_WAIT_S)


@contextmanager
def terminal(*arguments: str, home: Path) -> Iterator[Terminal]:
    """`millstream` with these arguments and a home of its own."""
    master, slave = pty.openpty()
    environment = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "TERM": "xterm"}
    environment |= {"COLUMNS": "160", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _own_terminal() -> None:
    """Make standard input the terminal that Ctrl-C comes from."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
