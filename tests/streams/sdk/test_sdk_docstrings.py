"""The examples in the docstrings of the SDK say what happens."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from millstream.streams import sdk

MODULES = [module.name for module in pkgutil.iter_modules(sdk.__path__)]
PUBLIC = [sdk.StreamBuilder, sdk.Stream, sdk.KeyedStream, sdk.WindowedStream]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module_hold(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"millstream.streams.sdk.{module}"))
    assert found.failed == 0


@pytest.mark.parametrize("kind", PUBLIC)
def test_every_public_method_is_documented(kind: type) -> None:
    methods = [name for name in vars(kind) if not name.startswith("_")]
    assert methods
    assert [name for name in methods if not (getattr(kind, name).__doc__ or "").strip()] == []
