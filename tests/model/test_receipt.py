"""Receipt handles as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConsumeRefused
from millstream.model.receipt import ReceiptHandle

_NUMBER = st.integers(min_value=0, max_value=2**62)


@given(
    st.builds(
        ReceiptHandle,
        _NUMBER,
        _NUMBER,
        _NUMBER,
        _NUMBER,
        _NUMBER,
        st.just("broker-a"),
        _NUMBER,
        _NUMBER,
        _NUMBER,
        lite_topic=st.sampled_from(["", "ann", "7"]),
    )
)
def test_what_was_encoded_is_decoded(handle: ReceiptHandle) -> None:
    assert ReceiptHandle.decode(handle.encode()) == handle
    assert len(handle.encode().split(" ")) == (10 if handle.lite_topic else 9)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1 2 3",
        "1 2 3 4 5 b 6 7 x",
        "1 2 3 4 5 b 6 7 8 ",
        "1 2 3 4 5 b 6 7 8 a b",
        "1 2 3 4 5 b 6 7",
        "9" * 600,
    ],
)
def test_other_text_is_refused_with_its_number(text: str) -> None:
    with pytest.raises(ConsumeRefused) as refused:
        ReceiptHandle.decode(text)
    assert refused.value.label == "MS-3201"
