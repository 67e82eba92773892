"""SCRAM-SHA-256 as RFC 7677 has it."""

from __future__ import annotations

import pytest

from millstream.security import scram
from millstream.security.scram import MAX_SCRAM_BYTES, ScramExchange

FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="


class KnownSalt(ScramExchange):
    """With the salt of the example of RFC 7677, section 3."""

    def begin(self, message: bytes) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            salt = scram.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
            patch.setattr(scram.hmac, "digest", lambda *_: salt)
            return super().begin(message)


def example(secret: str = "pencil") -> KnownSalt:
    return KnownSalt(lambda _: secret, b"key", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")


def test_the_example_of_the_standard_is_let_in_and_gets_its_proof() -> None:
    exchange = example()
    answer = exchange.begin(FIRST)
    assert answer == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert exchange.name == "user"
    assert exchange.end(FINAL) == (True, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_who_has_another_secret_is_not_let_in() -> None:
    exchange = example("pencils")
    exchange.begin(FIRST)
    assert exchange.end(FINAL)[0] is False


@pytest.mark.parametrize(
    "message",
    [b"", b"x", b"p=tls-unique,,n=a,r=b", b"n,a=other,n=a,r=b", b"n,,m=x,n=a,r=b", b"n,,n=a=b,r=c", b"n,,n=a", b"\xff",
     b"n,,n=" + b"a" * MAX_SCRAM_BYTES + b",r=b"],
)  # fmt: skip
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        example().begin(message)


@pytest.mark.parametrize(
    "message",
    [b"", FINAL.replace(b"biws", b"eSws"), FINAL.replace(b"rOpr", b"rOpx"), FINAL.replace(b"p=d", b"p=?"), FINAL[:-8]],
)
def test_a_last_message_of_another_exchange_is_refused(message: bytes) -> None:
    exchange = example()
    exchange.begin(FIRST)
    with pytest.raises(ValueError):  # noqa: PT011
        exchange.end(message)


def test_names_that_nobody_has_have_a_salt_that_stays() -> None:
    answers = {ScramExchange(lambda _: "x", b"key", "n").begin(b"n,,n=a=2Cb=3D,r=c") for _ in range(2)}
    assert len(answers) == 1
    other = ScramExchange(lambda _: "x", b"key", "n")
    assert other.begin(b"n,,n=b,r=c") not in answers
