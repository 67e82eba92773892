"""Asks the process of `source_forks` to be a program: `python -I -S fork_request.py SOCKET -m MODULE`.

Spark takes this process for the program: it ends when the program does, and passes on that it shall end. Where nobody
is there to be asked, it becomes the program. It imports little, since its start is what it is there to save.
"""

from __future__ import annotations

import marshal
import os
import signal
import socket
import sys


def ask(path: str, words: list[str]) -> bool:
    """Whether the program was run, to its end."""
    with socket.socket(socket.AF_UNIX) as asked:
        try:
            asked.connect(path)
            socket.send_fds(asked, [b"\n"], [0, 1, 2])
            asked.sendall(marshal.dumps((words, dict(os.environ), os.getcwd())))
            asked.shutdown(socket.SHUT_WR)
            pid = asked.recv(32)
        except OSError:
            return False
        if not pid:
            return False
        signal.signal(signal.SIGTERM, lambda *_: _tell(int(pid)))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        # The program holds the other end open.
        asked.recv(1)
        return True


def _tell(pid: int) -> None:
    try:  # noqa: SIM105 - contextlib is long to import
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass


def main() -> None:
    """Run the program of the command line."""
    path, *words = sys.argv[1:]
    # Who is told to end waits until it knows whom to tell.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    if not ask(path, words):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.execv(sys.executable, [sys.executable, *words])


if __name__ == "__main__":
    main()
