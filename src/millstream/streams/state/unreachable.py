"""Errors of remote state stores, and retried calls to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["ATTEMPTS", "LONGEST_PAUSE_S", "StateDenied", "StateUnreachable", "try_again"]

ATTEMPTS: Final = 6
"""How often a call to a place of state is made before it fails: with the pauses between for about six seconds."""

LONGEST_PAUSE_S: Final = 3.0
"""The longest pause between two of these calls; the first is a tenth of a second, each further one twice as long."""

_FIRST_PAUSE_S: Final = 0.1

_Result = TypeVar("_Result")


class StateUnreachable(OSError):
    """A place of state did not answer, or refused a call: which file, why, and what helps."""

    def __init__(self, place: str, name: str, cause: str, remedy: str) -> None:
        super().__init__(f"{name or 'The listing'} of the state in {place}: {cause} {remedy}")
        self.place, self.name, self.cause, self.remedy = place, name, cause, remedy

    def __reduce__(self) -> tuple[type[StateUnreachable], tuple[str, str, str, str]]:
        return type(self), (self.place, self.name, self.cause, self.remedy)


class StateDenied(StateUnreachable):
    """A place of state that is not there, or that one may not use. To try again does not help."""


def try_again(
    call: Callable[[], _Result], explain: Callable[[Exception], StateUnreachable], pause: Callable[[float], None]
) -> _Result:
    """What `call` gives; it is made again after a pause where it raises what may pass.

    `explain` says what an error means. Raises its StateUnreachable after the last attempt, StateDenied and
    FileNotFoundError at once.
    """
    pause_s = _FIRST_PAUSE_S
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except FileNotFoundError:
            raise
        except Exception as error:
            reason = explain(error)
            if isinstance(reason, StateDenied):
                raise reason from error
        # Tasks that failed together do not ask together again.
        pause(pause_s * random.uniform(0.8, 1.0))
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    try:
        return call()
    except FileNotFoundError:
        raise
    except Exception as error:
        raise explain(error) from error
