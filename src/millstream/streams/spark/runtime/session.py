"""The Spark session that jobs run in: local, quiet, pinned to UTC, with RocksDB state.

The Python that Spark starts for its workers: this one, without the zipped PySpark in front of the installed one.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.logger import PySparkLogger

from millstream.streams.errors import JobError
from millstream.streams.spark.runtime.class_archive import archive_directory, find_archive
from millstream.streams.spark.runtime.java import JavaHome, find_java, make_launcher
from millstream.streams.spark.runtime.source_forks import FORKS_VARIABLE, READER
from millstream.streams.spark.runtime.standalone import SECRET_VARIABLE, authentication, secret_settings
from millstream.streams.spark.runtime.worker_daemon import DAEMON_MODULE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = [
    "CLUSTER_SETTINGS",
    "SQL_SETTINGS",
    "SessionOptions",
    "make_interpreter",
    "socket_settings",
    "spark_settings",
    "start_session",
]

_SPARKS_DAEMON: Final = "pyspark.daemon"
"""What Spark forks workers from that do not work on rows, whatever the setting of the daemon's module says."""


def make_interpreter() -> Path:
    """A program that runs this Python, for PYSPARK_PYTHON.

    Spark puts `pyspark.zip`, a zipped Py4J and a jar in front of PYTHONPATH. Modules in a zip have no bytecode, so each
    process would compile PySpark again, which takes it about a second; what is installed beside us is the same.
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


MINIMUM_MEMORY_MB = 512
"""Spark refuses smaller heaps."""

WORKER_PATIENCE_S = 120
"""How long the JVM and a Python worker wait for each other; Spark's 15 s end jobs on a busy machine."""

LONGEST_SOCKETS_DIRECTORY_BYTES = 60
"""Unix allows 104 to 108 bytes for the path of a socket; Spark's names have 42."""

_FIRST_COMPILER = " -XX:TieredStopAtLevel=1"
_END_WITHOUT_MEMORY = " -XX:+ExitOnOutOfMemoryError"

JAVA_WITHOUT_MEMORY: Final = 3
"""The code that Java ends with by that option."""
"""Slower code, compiled sooner and once: 15 % less processor time of a rule job of 900,000 events, in turns."""

_OWN_ADDRESS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Nobody else talks to the driver, except on a cluster."""

_LOCAL_CHECKPOINTS = {
    # The usual one asks about links and rights of files by starting programs: seven in each micro-batch, 0.15 s.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Hive's own, which Spark brings along, does not let a file take the place of another.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
}
"""For checkpoints that one machine writes; see `_write_no_checksums`."""

CLUSTER_SETTINGS = {
    # Two attempts of a task at a time would both send their rows.
    "spark.speculation": "false",
    # What a lost executor has made for later stages is made again by the next attempt of the micro-batch: Spark tells a
    # task which attempt of its stage it is, but not in Python, and a sink must know that it has begun before.
    "spark.stage.maxConsecutiveAttempts": "1",
}
"""What sinks rely on where executors may be lost and the job goes on."""

SQL_SETTINGS = {
    # TIMESTAMP columns are instants for Spark; both of Flink's kinds mean the same only in UTC.
    "spark.sql.session.timeZone": "UTC",
    # A name means a column of the input: inside of functions over elements Spark takes a new column of that name first.
    "spark.sql.lateralColumnAlias.enableImplicitResolution": "false",
    # Flink's names are case-sensitive.
    "spark.sql.caseSensitive": "true",
    # An overflow wraps and a bad cast is NULL, as in Flink: no expression ends a query.
    "spark.sql.ansi.enabled": "false",
    # A pattern or text that only older releases took is an error or NULL, never a question about releases.
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # The last value of a key counts, as in Flink; Spark would end the query at the second one.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Parts are small: re-planning each micro-batch costs more than it can save.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "64",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # How often an idle job asks the broker: each time costs about 2 ms of processor time.
    "spark.sql.streaming.pollingDelay": "25ms",
    # How plans are written for a page that is not shown; they are written in each micro-batch all the same.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}
"""The settings that the translation of plans relies on."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How to start Spark. `cores` None takes all; `memory_mb` is the JVM's heap; `settings` win over all others.

    `master` is the address of a cluster; blank runs it beside this process. `worker_python` is the interpreter of the
    workers, if it is another one than this process's. `few_rows_in_java` is for jobs whose rows hardly leave their
    Python workers, as where rules judge a stream: there Java's second compiler takes more than it ever gives back.
    With `ends_without_memory` Java ends, with JAVA_WITHOUT_MEMORY, at the first object that its heap has no room for:
    for those who start it again. Without, threads of it may be gone, and a query waits for ever.
    """

    name: str = "millstream"
    cores: int | None = None
    memory_mb: int = 1024
    scratch: Path | None = None
    self_test: bool = True
    settings: dict[str, str] = field(default_factory=dict)
    master: str = ""
    worker_python: str = ""
    few_rows_in_java: bool = False
    ends_without_memory: bool = False


def start_session(
    options: SessionOptions = SessionOptions(), tell: Callable[[str], None] | None = None
) -> SparkSession:
    """A running session whose Python workers have answered once; takes 5 to 10 s. `tell` hears what is waited for.

    Sets PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON of this process. One session per process: where one
    runs already it is returned with `SQL_SETTINGS` applied. Raises JobError JAVA_MISSING or SPARK_START_FAILED.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        for name, value in SQL_SETTINGS.items():
            running.conf.set(name, value)
        return running
    say = tell or (lambda _step: None)
    say("looking for Java")
    java = find_java()
    # A worker with another interpreter dies with words that name neither.
    own = make_interpreter() if _is_local(options) else None
    interpreter = sys.executable if own is None else str(own)
    os.environ["PYSPARK_DRIVER_PYTHON"] = interpreter
    os.environ["PYSPARK_PYTHON"] = options.worker_python or interpreter
    # The workers of sources read only this, not Spark's setting of the same meaning.
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", str(WORKER_PATIENCE_S))
    try:
        with _java_home(make_launcher(java, find_archive(java.path, archive_directory()))):
            say(f"starting Spark on Java {java.version}")
            sockets = {} if own is None else socket_settings(own.parent)
            with nullcontext() if own is not None else secret_settings():
                session = _start(SparkSession.builder, options, sockets)
        if options.self_test:
            say("waiting for the first Python worker")
            _ask_a_worker(session)
    except Exception as error:
        words = f"Spark did not start on {_words(java)}: {_first_line(error)}"
        raise JobError("SPARK_START_FAILED", words, remedy=_remedy(options)) from error
    return session


def _remedy(options: SessionOptions) -> str | None:
    if not options.master.startswith("spark://"):
        return None
    known = "was set" if authentication() else "was not set"
    return (
        f"Is {options.master} a running master of this Spark's version? {SECRET_VARIABLE} {known}; all have the same."
    )


@contextmanager
def _java_home(home: Path) -> Iterator[None]:
    """JAVA_HOME for the start alone: the launcher goes with this process, but what it starts may live on."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        # Not before: who leaves while Spark starts leaves the launcher to what is about to run it.
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        if before is None:
            del os.environ["JAVA_HOME"]
        else:
            os.environ["JAVA_HOME"] = before


def _silence_error_logs() -> None:
    """PySpark prints a JSON line for an error that it also raises; the raised one is told by the job."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def socket_settings(directory: Path) -> dict[str, str]:
    """Settings for workers that are talked to over Unix sockets in `directory`, which others must not enter.

    Over TCP, as Spark does by itself, an answer in two small parts waits 40 ms in each micro-batch: the second part for
    the word that the first has come, and that word for something to go along with. Blank where the directory's name is
    too long for a socket in it.
    """
    if len(os.fsencode(directory)) > LONGEST_SOCKETS_DIRECTORY_BYTES:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(directory),
    }


def _start(builder: SparkSession.Builder, options: SessionOptions, sockets: dict[str, str]) -> SparkSession:
    for name, value in spark_settings(options, sockets).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if _is_local(options):
        _write_no_checksums(spark)
    return spark


def spark_settings(options: SessionOptions, sockets: dict[str, str]) -> dict[str, str]:
    """All that a session with these options sets of Spark; `sockets` as `socket_settings` gives them."""
    cores = options.cores or os.cpu_count() or 1
    scratch = options.scratch or Path(tempfile.gettempdir())
    log4j = resources.files("millstream.streams.spark") / "log4j2.properties"
    return {
        "spark.master": options.master or f"local[{cores}]",
        "spark.app.name": options.name,
        "spark.driver.memory": f"{max(options.memory_mb, MINIMUM_MEMORY_MB)}m",
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={Path(str(log4j)).as_uri()} -XX:+UseSerialGC -Xss4m -XX:-UsePerfData"
            f" -Dmillstream.spark.log={'error' if os.environ.get('MILLSTREAM_DEBUG') == '1' else 'off'}"
            f" -Dderby.system.home={scratch}{_FIRST_COMPILER if options.few_rows_in_java else ''}"
            f"{_END_WITHOUT_MEMORY if options.ends_without_memory else ''}"
        ),
        **(_OWN_ADDRESS if _is_local(options) else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "millstream-warehouse"),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        # A Python worker on a busy machine may take longer than Spark's 15 s to connect, which would end the query.
        "spark.python.authenticate.socketTimeout": f"{WORKER_PATIENCE_S}s",
        # PySpark would tell Java of each column expression which line of Python it is from: in six calls, with a look
        # for IPython. That takes half of what the start of a job with many outputs takes in Python, and a third in
        # Java. Spark takes it at its start alone.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **({"spark.python.daemon.module": DAEMON_MODULE, **_LOCAL_CHECKPOINTS} if _is_local(options) else {}),
        **sockets,
        **({} if _is_local(options) else CLUSTER_SETTINGS | authentication()),
        **SQL_SETTINGS,
        **options.settings,
    }


def _write_no_checksums(spark: SparkSession) -> None:
    """Have Hadoop's local file system write files alone, without a file of checksums beside each.

    A file takes the place of an older one in one step then. With checksums these are two, and a crash between them
    leaves a file that cannot be read. Spark's usual way to write checkpoints has none either.
    """
    context: Any = spark.sparkContext
    files = context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    files.setWriteChecksum(False)


def _is_local(options: SessionOptions) -> bool:
    """Whether all workers run on this machine, where our interpreter and modules are."""
    return (options.master or options.settings.get("spark.master", "local")).startswith("local")


def _ask_a_worker(session: SparkSession) -> None:
    """Send one row through a Python worker: shows a wrong interpreter or package now, not inside a job."""

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    rows = session.range(1).mapInArrow(same, "id bigint").collect()
    if len(rows) != 1:
        raise RuntimeError(f"the self test returned {len(rows)} rows in place of 1")


def _words(java: JavaHome) -> str:
    return f"Java {java.version} ({java.origin}: {java.path})"


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
