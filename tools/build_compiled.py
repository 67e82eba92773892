"""Compiles the hot modules: those of src/ that have a `.pxd` with their types beside them.

    python tools/build_compiled.py DIRECTORY

makes DIRECTORY/millstream, the package as a wheel has it: every source, and an extension module beside each hot one,
which Python prefers. `PYTHONPATH=DIRECTORY` runs it. The work tree stays as it is. Needs Cython, setuptools and a C
compiler.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

__all__ = ["DIRECTIVES", "REQUIREMENTS", "build", "extensions_of", "hot_modules", "what_is_missing"]

SOURCE = Path(__file__).resolve().parent.parent / "src"
PACKAGE = "millstream"

REQUIREMENTS = ("cython>=3.1", "setuptools>=77")
"""What a build needs beside a compiler."""

DIRECTIVES = {
    "language_level": 3,
    # Types come from the .pxd files alone: an annotation of a source promises, and is not checked when it runs plain.
    "annotation_typing": False,
    "embedsignature": False,
}

_IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "*.pyd")


def hot_modules(source: Path = SOURCE) -> list[str]:
    """The names of the modules that are compiled, in order."""
    found = (file.relative_to(source).with_suffix("") for file in (source / PACKAGE).rglob("*.pxd"))
    return sorted(".".join(file.parts) for file in found if (source / file).with_suffix(".py").is_file())


def what_is_missing() -> str | None:
    """Why nothing can be compiled here, in words; None where all is there."""
    if not has_compiler():
        return "there is no C compiler"
    missing = [package for package in ("Cython", "setuptools") if importlib.util.find_spec(package) is None]
    return f"{' and '.join(missing)} must be installed" if missing else None


def has_compiler() -> bool:
    """Whether the machine has a C compiler, and Python its headers."""
    if sys.platform == "win32":
        # Visual Studio is not on PATH; the build itself finds it, or says that it does not.
        return True
    named = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    headers = Path(sysconfig.get_paths()["include"]) / "Python.h"
    return shutil.which(named.split()[0]) is not None and headers.is_file()


def build(target: Path, source: Path = SOURCE) -> list[Path]:
    """Copy the package of `source` below `target` and compile its hot modules there; the files that were made.

    Whatever Cython or the compiler raises ends it.
    """
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    package = target / PACKAGE
    shutil.copytree(source / PACKAGE, package, ignore=_IGNORED, dirs_exist_ok=True)
    names = hot_modules(target)
    flags = [] if sys.platform == "win32" else ["-g0", "-Wno-unused-function"]
    extensions = [
        Extension(name, [str(Path(*name.split(".")).with_suffix(".py"))], extra_compile_args=flags) for name in names
    ]
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="millstream-compiled-") as scratch:
        os.chdir(target)
        try:
            made = cythonize(
                extensions,
                build_dir=scratch,
                compiler_directives=DIRECTIVES,
                nthreads=0,
                quiet=True,
                force=True,
            )
            command = build_ext(Distribution({"ext_modules": made}))
            command.build_lib, command.build_temp = str(target), scratch
            command.parallel = os.cpu_count()
            command.ensure_finalized()
            command.run()
        finally:
            os.chdir(before)
    return extensions_of(target)


def extensions_of(target: Path) -> list[Path]:
    """The extension modules that a build put below `target`."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return sorted((target / PACKAGE).rglob(f"*{suffix}"))


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("error: give the directory that the compiled package goes to.", file=sys.stderr)
        return 2
    missing = what_is_missing()
    if missing is not None:
        print(f"error: the hot modules cannot be compiled: {missing}.", file=sys.stderr)
        return 1
    # The build changes the directory, and a path from here would lead elsewhere.
    target = Path(arguments[0]).resolve()
    target.mkdir(parents=True, exist_ok=True)
    made = build(target)
    if len(made) < len(hot_modules()):
        print(f"error: {len(made)} of {len(hot_modules())} hot modules were compiled.", file=sys.stderr)
        return 1
    size_kb = sum(file.stat().st_size for file in made) // 1024
    print(f"{len(made)} modules compiled, {size_kb:,} KB; PYTHONPATH={target} runs them.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
