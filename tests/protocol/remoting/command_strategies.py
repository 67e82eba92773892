"""Commands of all kinds, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from millstream.protocol.remoting.command import LANGUAGES, HeaderType, RemotingCommand

__all__ = ["commands"]

some_text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
int32 = st.integers(-(2**31), 2**31 - 1)
commands = st.builds(
    RemotingCommand,
    code=st.integers(0, 32767),
    ext=st.dictionaries(some_text, some_text, max_size=8),
    opaque=int32,
    flag=st.integers(0, 3),
    remark=st.none() | some_text,
    language=st.sampled_from(LANGUAGES),
    version=st.integers(0, 32767),
    header_type=st.sampled_from(HeaderType),
)
