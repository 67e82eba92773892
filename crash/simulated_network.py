"""Processes of several machines in one event loop, and the connections between them. Nothing leaves this process.

A callback belongs to the process in whose context it was asked for, and runs while that one lives and is not stopped.
The product's own servers and clients run on it: `SimulatedLoop.create_connection` reaches a `SimulatedDoorway`, which
takes the place of `TlsSniffer`. Connections are streams, as those of TCP: a cut link holds the bytes back until it
heals, a killed process resets its connections, one whose machine lost its power says nothing.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from itertools import count
from typing import Any, Final, Self

from crash.virtual_loop import VirtualLoop

__all__ = ["SimulatedDoorway", "SimulatedLoop", "SimulatedNetwork", "SimulatedProcess", "running_process"]

_RECHECK_S: Final = 0.1
"""Until a connection over a cut link is tried again."""

_SLOWEST_CALL_S: Final = 0.02
_TICK_S: Final = 1e-6

_running: ContextVar[SimulatedProcess | None] = ContextVar("running_process", default=None)


def running_process() -> SimulatedProcess | None:
    """The process whose code runs now; None in the programme itself."""
    return _running.get()


class _Call:
    """One callback of a process, which knows whether it was cancelled while its process was stopped."""

    __slots__ = ("args", "callback", "context", "handle", "process")

    def __init__(
        self, process: SimulatedProcess, callback: Callable[..., Any], args: tuple[Any, ...], context: Context
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.context = context
        self.handle: asyncio.Handle | None = None

    def __call__(self) -> None:
        process = self.process
        if process.is_stopped or process.is_dead:
            process.held.append(self)
        elif self.handle is None or not self.handle.cancelled():
            self.callback(*self.args)


class SimulatedProcess:
    """One life of a program on the machine `host`."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.is_dead = False
        self.is_stopped = False
        self.disk_is_full = False
        self.disk_fails = False
        """Whether nothing that it writes reaches the disk any more, which it is told."""
        self.held: list[_Call] = []
        self.tasks: list[asyncio.Task[Any]] = []
        """All that it ever began: what a collected task still wants to do must not run within the next life."""
        self.context = copy_context()
        self.context.run(_running.set, self)

    def wind_up(self, loop: SimulatedLoop) -> list[asyncio.Task[Any]]:
        """Let go of everything, now that nobody looks any more; the tasks that are to be cancelled."""
        self.is_dead = False
        self.go_on(loop)
        return [task for task in self.tasks if not task.done()]

    def go_on(self, loop: SimulatedLoop) -> None:
        """Run what came while it was stopped."""
        self.is_stopped = False
        held, self.held = self.held, []
        for call in held:
            loop.call_again(call)


class SimulatedNetwork:
    """What is cut, how slow it is, and who listens. Links are pairs of hosts, from one to the other."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.cut: set[tuple[str, str]] = set()
        self.slowest_s = 0.002
        self.doorways: dict[tuple[str, int], SimulatedDoorway] = {}
        self.transports: list[SimulatedTransport] = []
        self.dark: set[str] = set()
        """Hosts without power."""

    def delay_s(self) -> float:
        """How long a piece of a stream is on its way now."""
        return self.choose.uniform(0.0001, self.slowest_s)

    def is_cut(self, first: str, second: str) -> bool:
        """Whether nothing goes from the first host to the second."""
        return (first, second) in self.cut or first in self.dark or second in self.dark

    def heal(self) -> None:
        """Let everything through again."""
        self.cut.clear()
        self.slowest_s = 0.002

    def end_process(self, process: SimulatedProcess, *, says_so: bool) -> None:
        """Close the doors and the connections of a process that is no more. `says_so`: its system resets them."""
        self.doorways = {key: one for key, one in self.doorways.items() if one.process is not process}
        for transport in [one for one in self.transports if one.process is process]:
            transport.vanish(says_so=says_so)

    def reset_one(self) -> None:
        """Break one connection, as a router does that forgot it."""
        if self.transports:
            chosen = self.choose.choice(self.transports)
            chosen.abort()
            chosen.far.abort()


class SimulatedLoop(VirtualLoop):
    """The loop of all processes."""

    def __init__(self, choose: random.Random) -> None:
        super().__init__(choose, _SLOWEST_CALL_S)
        self.network = SimulatedNetwork(choose)
        self._ports = count(40_000)
        self.set_task_factory(_make_task)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        call, where = _owned(callback, args, context)
        handle = super().call_soon(call, *(() if isinstance(call, _Call) else args), context=where)
        if isinstance(call, _Call):
            call.handle = handle
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        call, where = _owned(callback, args, context)
        # Time goes on between two timers, as it does anywhere: what is late by a rounding error is not late for ever.
        when = max(when, self.time() + _TICK_S)
        handle = super().call_at(when, call, *(() if isinstance(call, _Call) else args), context=where)
        if isinstance(call, _Call):
            call.handle = handle
        return handle

    def call_again(self, call: _Call) -> None:
        """Run soon what came to a process that was stopped."""
        super().call_soon(call, context=call.context)

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        process = _running.get()
        assert process is not None
        network = self.network
        while True:
            await asyncio.sleep(network.delay_s())
            if not network.is_cut(process.host, host) and not network.is_cut(host, process.host):
                break
            await asyncio.sleep(_RECHECK_S)
        doorway = network.doorways.get((host, port))
        if doorway is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        protocol = protocol_factory()
        near = SimulatedTransport(self, process, (host, port))
        far = SimulatedTransport(self, doorway.process, (process.host, next(self._ports)))
        near.far, far.far = far, near
        near.begin(protocol)
        self.call_soon(doorway.accept, far, context=doorway.process.context.copy())
        return near, protocol

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        protocol = protocol_factory()
        sock.begin(protocol)
        return sock, protocol


def _owned(callback: Any, args: tuple[Any, ...], context: Context | None) -> tuple[Any, Context]:
    context = copy_context() if context is None else context
    process = context.get(_running)
    if process is None or isinstance(callback, _Call):
        return callback, context
    return _Call(process, callback, args, context), context


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    process = (options.get("context") or copy_context()).get(_running)
    if process is not None:
        process.tasks.append(task)
    return task


class _Socket:
    """What a transport is asked for by its owner."""

    def setsockopt(self, *_: object) -> None:
        """Nothing lingers here."""


class SimulatedTransport(asyncio.Transport):
    """One end of a connection; `far` is the other one."""

    far: Self

    def __init__(self, loop: SimulatedLoop, process: SimulatedProcess, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "socket": _Socket()})
        self.process = process
        self._loop = loop
        self._protocol: Any = None
        self._arrived: deque[bytes | None] = deque()
        self._on_way: deque[tuple[float, bytes | None]] = deque()
        self._is_closing = False
        self._is_over = False
        loop.network.transports.append(self)

    def begin(self, protocol: Any) -> None:
        """Give it its protocol, and that one what has come so far."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._hand_over()

    # asyncio.Transport

    def write(self, data: Any) -> None:
        if not self._is_closing and len(data):
            self._send(bytes(data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._send(None)
            self._loop.call_soon(self._end, context=self.process.context.copy())

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def vanish(self, *, says_so: bool) -> None:
        """Its process is no more."""
        self._is_closing = True
        self._drop()
        if says_so:
            self._send(None)

    # inside

    def _send(self, data: bytes | None) -> None:
        """Put bytes, or the end (None), on their way: in order, and not over a cut link."""
        far = self.far
        if far._is_over:
            return
        at_s = self._loop.time() + self._loop.network.delay_s()
        if far._on_way:
            at_s = max(at_s, far._on_way[-1][0])
        far._on_way.append((at_s, data))
        if len(far._on_way) == 1:
            self._loop.call_at(at_s, far._arrive, context=Context())

    def _arrive(self) -> None:
        """In no process's name: a system takes bytes in for a stopped one too."""
        network = self._loop.network
        while self._on_way and not self._is_over:
            at_s, data = self._on_way[0]
            if network.is_cut(self.far.process.host, self.process.host):
                at_s = self._loop.time() + _RECHECK_S
            if at_s > self._loop.time():
                self._loop.call_at(at_s, self._arrive, context=Context())
                return
            self._on_way.popleft()
            if self.process.is_dead:
                # Its machine has its power back, and knows nothing of the connection.
                self._drop()
                self._send(None)
                return
            self._arrived.append(data)
            self._loop.call_soon(self._hand_over, context=self.process.context.copy())

    def _hand_over(self) -> None:
        while self._arrived and self._protocol is not None and not self._is_over:
            data = self._arrived.popleft()
            if data is None:
                self._is_closing = True
                self._end()
                return
            rest = memoryview(data)
            while len(rest) and not self._is_over:
                room = self._protocol.get_buffer(len(rest))
                taken = min(len(room), len(rest))
                room[:taken] = rest[:taken]
                rest = rest[taken:]
                self._protocol.buffer_updated(taken)

    def _end(self) -> None:
        if not self._is_over:
            self._drop()
            if self._protocol is not None:
                self._protocol.connection_lost(None)

    def _drop(self) -> None:
        self._is_over = True
        self._on_way.clear()
        self._arrived.clear()
        if self in self._loop.network.transports:
            self._loop.network.transports.remove(self)


class SimulatedDoorway:
    """Where a server listens; made as a `TlsSniffer` is."""

    def __init__(self, enter: Any, _descriptors: Any, _strangers: Any, *, admits: Callable[[], bool]) -> None:
        self._enter = enter
        self._admits = admits
        self._entering: set[asyncio.Task[None]] = set()
        process = running_process()
        assert process is not None
        self.process = process
        self.port = 0

    async def start(self, host: str, port: int) -> int:
        """Listen. OSError where another one does."""
        doorways = self._network.doorways
        if (host, port) in doorways:
            raise OSError(errno.EADDRINUSE, "in use")
        doorways[host, port] = self
        self.port = port
        return port

    def close(self) -> None:
        """Listen no more."""
        doorways = self._network.doorways
        for key in [key for key, one in doorways.items() if one is self]:
            del doorways[key]

    def accept(self, transport: SimulatedTransport) -> None:
        """A connection has come."""
        if not self._admits():
            transport.close()
            return
        task = asyncio.get_running_loop().create_task(self._enter(transport, False))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)

    @property
    def _network(self) -> SimulatedNetwork:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        return loop.network
