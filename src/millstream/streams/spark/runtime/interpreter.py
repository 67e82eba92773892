"""The Python that Spark starts for its workers: this one, without the zipped PySpark in front of the installed one."""

from __future__ import annotations

import atexit
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from millstream.streams.spark.runtime.source_forks import FORKS_VARIABLE, READER
from millstream.streams.spark.runtime.worker_daemon import DAEMON_MODULE

__all__ = ["make_interpreter"]

_SPARKS_DAEMON: Final = "pyspark.daemon"
"""What Spark forks workers from that do not work on rows, whatever the setting of the daemon's module says."""


def make_interpreter() -> Path:
    """A program that runs this Python, for PYSPARK_PYTHON.

    Spark puts `pyspark.zip`, a zipped Py4J and a jar in front of PYTHONPATH. Modules in a zip have no bytecode, so each
    process would compile PySpark anew, which takes it about a second; what is installed beside us is the same.
    Readers of sources are asked for at `source_forks`, where it runs, and so are the processes of Spark's own that look
    up, make and plan sources, three of them: each would import PySpark for a moment's work.
    The program is removed when this process ends.
    """
    home = Path(tempfile.mkdtemp(prefix="millstream-python-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    program = home / "python"
    python, forks = shlex.quote(sys.executable), shlex.quote(str(home / "forks"))
    request = shlex.quote(str(Path(__file__).with_name("fork_request.py")))
    program.write_text(
        "#!/bin/sh\n"
        "set -f; IFS=:; kept=\n"
        "for entry in $PYTHONPATH; do\n"
        "  case $entry in\n"
        "    */python/lib/pyspark.zip|*/python/lib/py4j-*-src.zip|*/jars/spark-core_*.jar) ;;\n"
        '    *) kept="${kept:+$kept:}$entry" ;;\n'
        "  esac\n"
        "done\n"
        'unset IFS; export PYTHONPATH="$kept"\n'
        f"export {FORKS_VARIABLE}={forks}\n"
        "forked=\n"
        "case $2 in\n"
        f"  {READER}) forked=1 ;;\n"
        f'  {_SPARKS_DAEMON}) forked=1; shift 2; set -- -m {DAEMON_MODULE} "$@" ;;\n'
        "esac\n"
        f'if [ "$forked" ] && [ -S "${FORKS_VARIABLE}" ]; then\n'
        f'  exec {python} -I -S {request} "${FORKS_VARIABLE}" "$@"\n'
        "fi\n"
        f'exec {python} "$@"\n'
    )
    program.chmod(0o755)
    return program
