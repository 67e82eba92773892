"""`millstream job run`: run a DataStream SDK program or an SQL script, on local Spark or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from millstream.cli.options import CommonOptions, ExitCode
from millstream.cli.printer import print_usage
from millstream.cli.streams.sql import run_plans, show_plans, sql_session
from millstream.model.errors import ExtraMissing, MillstreamError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.cli.streams.sql_shell.engine import SparkEngine, Tell
    from millstream.streams.plan.nodes import JobPlan, QueryPlan

__all__ = ["run"]

_MODULE = "millstream_job"
"""What a program is called while it runs as a module."""


def run(
    file: Path,
    /,
    *,
    master: str = "",
    settings: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    code: Annotated[list[Path] | None, Parameter(negative="")] = None,
    archive: Annotated[list[str] | None, Parameter(negative="")] = None,
    python: str = "",
    bounded: Annotated[bool, Parameter(negative="")] = False,
    explain: Annotated[bool, Parameter(negative="")] = False,
    checkpoint_dir: Path | None = None,
    from_savepoint: Path | None = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Run a program of the DataStream SDK (FILE.py) or a script of SQL (FILE.sql) until Ctrl-C.

    A program has a StreamBuilder, or main(), which gives one or runs by itself. Examples: millstream job run words.py;
    millstream job run words.py --master spark://host:7077 --archive env.tar.gz#env --python ./env/bin/python.

    Parameters
    ----------
    file
        The program or script.
    master
        Address of a Spark cluster, as Spark writes it; default: in this process.
    settings
        A setting as NAME=VALUE: one of SET, or one of Spark's that begins with spark. May be given several times.
    code
        A directory of modules that the workers need; that of FILE.py is always one. May be given several times.
    archive
        An archive for the workers, as FILE or FILE#DIRECTORY; see Spark's spark.archives. May be given several times.
    python
        The interpreter of a cluster's workers; default: the path of this process's.
    bounded
        Read what is there now, close all windows and end.
    explain
        Show the plans and start nothing, except what main() starts.
    checkpoint_dir
        Where offsets and state are kept, so that the next run goes on; on a cluster all machines must see it there.
        Default: a directory of this run only.
    from_savepoint
        A savepoint from which a job without a checkpoint begins.
    """
    if file.suffix not in (".py", ".sql"):
        return print_usage("Give a program FILE.py or a script FILE.sql.")
    if not file.is_file():
        raise MillstreamError("SQL_SCRIPT", f"There is no file {file}.")
    pairs = dict(_pair(setting) for setting in settings or ())
    if from_savepoint is not None:
        pairs["execution.state-recovery.path"] = str(from_savepoint.absolute())
    own = {name: value for name, value in pairs.items() if not name.startswith("spark.")}
    found = _script(file, own, common) if file.suffix == ".sql" else _program(file, own)
    plans, names = [plan for _, plan in found], [name for name, _ in found]
    if explain and plans:
        return show_plans(plans, common)
    if not plans:
        return ExitCode.DONE
    start = partial(
        _start_spark,
        {name: value for name, value in pairs.items() if name not in own},
        master,
        archive or [],
        python,
        [*([file.resolve().parent] if file.suffix == ".py" else []), *(code or [])],
    )
    from millstream.cli.streams.sql_shell.engine import SparkEngine

    engine: SparkEngine = SparkEngine(start)
    return run_plans(plans, common, bounded=bounded, checkpoint_dir=checkpoint_dir, names=names, engine=engine)


def _pair(setting: str) -> tuple[str, str]:
    name, equals, value = setting.partition("=")
    if not equals or not name.strip():
        message = f"{setting!r} is no setting."
        raise MillstreamError("SQL_OPTION", message, remedy="Write --set NAME=VALUE.")
    return name.strip(), value


Named = tuple[str, "JobPlan | QueryPlan"]


def _script(file: Path, settings: dict[str, str], common: CommonOptions) -> list[Named]:
    """The jobs of a script of SQL, which are called like the file."""
    from millstream.streams.plan.nodes import JobPlan, QueryPlan

    session = sql_session(common)
    for name, value in settings.items():
        session.set(name, value)
    try:
        commands = session.compile(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise MillstreamError("SQL_SCRIPT", f"Cannot read the script {file}: {error}.") from None
    plans = [command for command in commands if isinstance(command, JobPlan | QueryPlan)]
    if not plans:
        raise MillstreamError("SQL_SCRIPT", f"{file} has no SELECT and no INSERT.", remedy="")
    return [(f"{file.stem}-{number}", plan) for number, plan in enumerate(plans)]


def _program(file: Path, settings: dict[str, str]) -> list[Named]:
    """The jobs of a program; none where its main() ran them by itself."""
    try:
        from millstream.streams.sdk.program import jobs_of_program
    except ModuleNotFoundError as error:
        raise ExtraMissing("The stream engine", error.name, extra="streams") from None
    return list(jobs_of_program(file, settings))


def _start_spark(
    settings: dict[str, str], master: str, archives: Sequence[str], python: str, code: Sequence[Path], tell: Tell
) -> SparkSession:
    try:
        from millstream.streams.spark.runtime.session import SessionOptions, start_session
        from millstream.streams.spark.runtime.shipping import ship
    except ModuleNotFoundError as error:
        raise ExtraMissing("The stream engine", error.name, extra="streams") from None
    given = {**({"spark.archives": ",".join(archives)} if archives else {}), **settings}
    # What the workers need to answer at all is shipped first.
    session = start_session(SessionOptions(settings=given, master=master, worker_python=python, self_test=False), tell)
    if master and not master.startswith("local["):
        ship(session, code)
    return session
