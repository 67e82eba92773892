"""`millstream job run`: a program of the DataStream SDK, or a script of SQL, on Spark here or on a cluster."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
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
    from millstream.streams.sdk import StreamBuilder

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
        session.compile(_setting(name, value))
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
        from millstream.streams.sdk import StreamBuilder
    except ModuleNotFoundError as error:
        raise ExtraMissing("The stream engine", error.name, extra="streams") from None
    try:
        module = _load_program(file)
        made = [value for value in vars(module).values() if isinstance(value, StreamBuilder)]
        main = getattr(module, "main", None)
        if not made and callable(main):
            answer = main()
            if answer is None:
                return []
            made = list(answer) if isinstance(answer, Iterable) else [answer]
    except Exception as error:  # noqa: BLE001 - a user's program may raise anything
        raise _error_of(file, error) from None
    builders = list(dict.fromkeys(one for one in made if isinstance(one, StreamBuilder)))
    if not builders:
        message = f"{file} has no StreamBuilder, and no main() that gives one."
        raise MillstreamError("SQL_SCRIPT", message, remedy="Write builder = StreamBuilder(...), or def main().")
    return [(builder.job_id, _plan(builder, settings)) for builder in builders]


def _error_of(file: Path, error: Exception) -> MillstreamError:
    """The error of a program, with its place and the user's lines that led to it."""
    place, lines = _place(file, error)
    if isinstance(error, MillstreamError):
        # Its number and remedy are right as they are.
        error.message = f"{f'SQL of {place}' if hasattr(error, 'position') else place}: {error.message}"
        return error
    words = f"{place}: {type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    return MillstreamError(
        "JOB_FAILED", "\n".join([words, *lines, ""]) if lines else f"{words}.", remedy="Correct the program."
    )


def _place(file: Path, error: Exception) -> tuple[str, list[str]]:
    """The innermost line of the user's own files, and how it was reached; the program's name where there is none."""
    directory = file.resolve().parent
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(directory) and not frame.filename.startswith(_LIBRARIES)
    ]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_relative_path(error.filename)}, line {error.lineno}", [f"  {(error.text or '').strip()}"]
    if not own:
        return str(file), []
    lines = [f"  {_relative_path(one.filename)}, line {one.lineno}, in {one.name}: {one.line}" for one in own]
    return f"{_relative_path(own[-1].filename)}, line {own[-1].lineno}", lines


_LIBRARIES = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "purelib", "platlib"))
"""Where nothing is of the user, also where a virtual environment lies beside the program."""


def _relative_path(file: str) -> str:
    """The file as the user would write it here."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _plan(builder: StreamBuilder, settings: dict[str, str]) -> JobPlan:
    for name, value in settings.items():
        builder.sql(_setting(name, value))
    return builder.plan()


def _setting(name: str, value: str) -> str:
    return "SET '{}' = '{}'".format(*(text.replace("'", "''") for text in (name, value)))


def _load_program(file: Path) -> ModuleType:
    """The program as a module, whose functions travel to the workers with their code."""
    from pyspark import cloudpickle

    spec = importlib.util.spec_from_file_location(_MODULE, file.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    sys.path.insert(0, str(file.resolve().parent))
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    spec.loader.exec_module(module)
    return module


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
