"""A DataStream SDK program as a file: imported as a module to obtain its jobs."""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from millstream.model.errors import MillstreamError
from millstream.streams.plan.nodes import JobPlan
from millstream.streams.sdk.builder import StreamBuilder
from millstream.streams.sdk.submission import program_is_read

__all__ = ["jobs_of_program"]

_MODULE = "millstream_job"
"""What a program is called while it runs as a module; with a name behind it where there are several."""

_OTHER = re.compile(r"\W")


def jobs_of_program(file: Path, settings: Mapping[str, str], *, name: str = "") -> list[tuple[str, JobPlan]]:
    """The jobs of a program by their ids; none where its main() ran them by itself.

    `settings` are those of SET that go before the program's own. With a `name` several programs can be read in one
    process. Raises MillstreamError with the program's line for all that it raises, and where it has no StreamBuilder.
    """
    try:
        with program_is_read():
            module = _load_program(file, f"{_MODULE}_{_OTHER.sub('_', name)}" if name else _MODULE)
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


def _plan(builder: StreamBuilder, settings: Mapping[str, str]) -> JobPlan:
    for name, value in settings.items():
        builder.set(name, value)
    return builder.plan()


def _load_program(file: Path, name: str) -> ModuleType:
    """The program as a module, whose functions travel to the workers with their code."""
    from pyspark import cloudpickle

    spec = importlib.util.spec_from_file_location(name, file.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.resolve().parent))
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    spec.loader.exec_module(module)
    return module
