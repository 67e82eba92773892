"""Receipt handles as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.errors import ConsumeRefused
from millstream.model.handles import NO_LOG_OFFSET, ReceiptHandle

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


def test_a_text_without_the_log_offset_as_remoting_clients_make_it_is_read_and_written() -> None:
    handle = ReceiptHandle.decode("7 1000 60000 0 0 broker-a 3 9")
    assert handle == ReceiptHandle(7, 1000, 60000, 0, 0, "broker-a", 3, 9, NO_LOG_OFFSET)
    assert handle.encode() == "7 1000 60000 0 0 broker-a 3 9"


@pytest.mark.parametrize("lite_topic", ["ann", "7"])
def test_a_lite_topic_is_never_taken_for_a_log_offset(lite_topic: str) -> None:
    handle = ReceiptHandle(7, 1000, 60000, 0, 0, "broker-a", 3, 9, NO_LOG_OFFSET, lite_topic)
    assert ReceiptHandle.decode(handle.encode()) == handle


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1 2 3",
        "1 2 3 4 5 b 6 7 x",
        "1 2 3 4 5 b 6 7 8 ",
        "1 2 3 4 5 b 6 7 8 a b",
        "1 2 3 4 5 b 6",
        "1 2 3 4 5 b 6 ",
        "9" * 600,
    ],
)
def test_other_text_is_refused_with_its_number(text: str) -> None:
    with pytest.raises(ConsumeRefused) as refused:
        ReceiptHandle.decode(text)
    assert refused.value.label == "MS-3201"
