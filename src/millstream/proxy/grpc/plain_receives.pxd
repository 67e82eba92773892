# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.broker.pop.run_popper cimport DeliveredRun
from millstream.proxy.grpc.message_encoder cimport RunEncoder
from millstream.proxy.grpc.plain_caller cimport PlainCaller

cdef bytes _BEGIN


cdef class PlainReceives:
    cdef object _adapter, _broker_name, _clock, _delivery, _processor
    cdef PlainCaller _caller
    cdef dict _unusual

    @cython.locals(
        runs=list, written=list, body_bytes=cython.longlong, encoder=RunEncoder, run=DeliveredRun, encoded=tuple
    )
    cpdef bint answer(self, object call) except -1

    cdef _read(self, object call)

    cdef bint _is_unusual(self, str topic) except -1

    cdef _note_unusual(self, str topic)
