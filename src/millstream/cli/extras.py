"""Which extra brings a package that is not installed: said in place of an error that names a module alone."""

from __future__ import annotations

from typing import Final

from millstream.model.errors import ExtraMissing

__all__ = ["EXTRA_OF", "extra_missing"]

EXTRA_OF: Final = {
    "pyspark": "streams",
    "py4j": "streams",
    "pyarrow": "streams",
    "pandas": "streams",
    "numpy": "streams",
    "hyperscan": "streams",
    "yaml": "streams",
    "urllib3": "streams",
    "sigma": "sigma",
    "pymysql": "databases",
    "psycopg": "databases",
    "fastavro": "formats",
    "sklearn": "learning",
    "onnxruntime": "learning",
}
"""Modules of packages that the core does without, with the extra of pyproject.toml that brings each."""


def extra_missing(error: ModuleNotFoundError) -> ExtraMissing | None:
    """The refusal for a module that an extra brings; None for any other one."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    return None if extra is None else ExtraMissing("This command", module, extra=extra)
