"""The bulk lane's client: many messages as one Arrow batch, sent and fetched whole; needs `millstream[bulk]`."""

from importlib.util import find_spec

from millstream.model.errors import ExtraMissing

if find_spec("pyarrow") is None:
    raise ExtraMissing("The bulk lane", "pyarrow", extra="bulk")
