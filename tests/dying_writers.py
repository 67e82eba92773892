"""A process that writes rows by a connector and dies of kill -9 before they are committed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys

import pyarrow as pa

from millstream.streams.connectors.table import ConnectedTable

_PROGRAM = """
import os, pickle, signal, sys
import pyarrow as pa
from millstream.streams.connectors.opening import opened_sink
from millstream.streams.connectors.protocols import SinkTask
from millstream.streams.connectors.registry import CONNECTORS

name, table, rows = pickle.load(sys.stdin.buffer)
writer = opened_sink(CONNECTORS[name], table).writer(SinkTask("job-0", 4, 0))
writer.write(pa.RecordBatch.from_pylist(rows))
writer.finish()
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_before_the_commit(name: str, table: ConnectedTable, rows: pa.RecordBatch) -> None:
    """The rows are written as the task 0 of the micro-batch 4 of the job `job-0`; nobody commits them."""
    given = pickle.dumps((name, table, rows.to_pylist()))
    done = subprocess.run([sys.executable, "-c", _PROGRAM], input=given, env=os.environ, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
