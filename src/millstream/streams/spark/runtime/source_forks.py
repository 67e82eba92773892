"""The process that Spark's readers of sources are forked from: Spark starts one for each query, as a new Python.

It is itself forked from the process of the workers, which has what readers import. A reader that is asked for by
`fork_request` has its own standard streams, environment and directory, as if it had been started.
"""

from __future__ import annotations

import marshal
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

__all__ = ["FORKS_VARIABLE", "READER", "serve", "start_forks"]

FORKS_VARIABLE: Final = "MILLSTREAM_FORKS"
"""The environment's name of the socket at which readers are asked for."""

READER: Final = "pyspark.sql.streaming.python_streaming_source_runner"

_LOOK_S: Final = 1.0
"""How often the process looks whether that of the workers is still there; it ends with it."""

_ORDER_S: Final = 10.0
"""How long one who asks may take to say what for."""


def start_forks(path: Path) -> None:
    """Fork the process that serves `path`; returns in the caller alone, at once. No thread may live."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        path.unlink(missing_ok=True)
        listener.bind(str(path))
        listener.listen()
    except OSError:
        # A directory that is gone, or whose name is too long: readers are started one by one.
        listener.close()
        return
    parent = os.getpid()
    if os.fork() == 0:
        serve(listener, parent)
        sys.exit(0)
    listener.close()


def serve(listener: socket.socket, parent: int) -> None:
    """Fork a program for each that is asked for, until the process `parent` has ended."""
    path_of_modules = os.environ.get("PYTHONPATH")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    # Spark reads what the process of the workers says until nobody can say more.
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    while os.getppid() == parent:
        if not select.select([listener], [], [], _LOOK_S)[0]:
            continue
        connection = listener.accept()[0]
        # Who is not answered starts the program without us.
        with suppress(OSError, ValueError, EOFError, TypeError), connection:
            connection.settimeout(_ORDER_S)
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            try:
                words, variables, place = marshal.loads(_all_of(connection))
                if variables.get("PYTHONPATH") == path_of_modules and os.fork() == 0:
                    listener.close()
                    _be(connection, words, streams, variables, place)
            finally:
                for stream in streams:
                    os.close(stream)


def _all_of(asked: socket.socket) -> bytes:
    """What is said until the other side has no more to say."""
    return b"".join(iter(lambda: asked.recv(65536), b""))


def _be(
    asked: socket.socket, words: Sequence[str], streams: Sequence[int], variables: Mapping[str, str], place: str
) -> NoReturn:
    """Be the program `-m MODULE ARGUMENT ...`; the end of `asked` says that it has ended."""
    code: object = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        # What Python made of them belongs to the process that forked.
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        asked.settimeout(None)
        asked.sendall(str(os.getpid()).encode())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(place)
        _, module, *arguments = words
        sys.argv, sys.path[0] = [module, *arguments], place
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as Python does at the end of a program
        traceback.print_exc()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        # The process that forked has nothing to be tidied up by this one.
        os._exit(code if isinstance(code, int) else int(code is not None))
