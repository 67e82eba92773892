"""The Python that Spark starts for its workers: this one, without the zipped PySpark in front of the installed one."""

from __future__ import annotations

import atexit
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

__all__ = ["make_interpreter"]


def make_interpreter() -> Path:
    """A program that runs this Python, for PYSPARK_PYTHON.

    Spark puts `pyspark.zip`, a zipped Py4J and a jar in front of PYTHONPATH. Modules in a zip have no bytecode, so each
    process would compile PySpark anew, which takes it about a second; what is installed beside us is the same.
    The program is removed when this process ends.
    """
    home = Path(tempfile.mkdtemp(prefix="millstream-python-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    program = home / "python"
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
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    program.chmod(0o755)
    return program
