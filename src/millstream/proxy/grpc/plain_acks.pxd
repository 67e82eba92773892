# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.grpc.plain_ack cimport encode_ack_answer, read_plain_ack
from millstream.proxy.grpc.plain_caller cimport PlainCaller
from millstream.transport.grpc.call cimport ServerCall

cdef Py_ssize_t _MAX_BYTES, _MAX_ENTRIES, _MAX_GATHERED
cdef bytes _OK, _MULTIPLE


cdef class PlainAcks:
    cdef object _adapter, _clock, _delivery, _processor
    cdef bytes _broker_name
    cdef PlainCaller _caller

    @cython.locals(call=ServerCall)
    cpdef Py_ssize_t take(self, list calls, Py_ssize_t start) except -1

    @cython.locals(
        caller=PlainCaller, renews=bint, group=str, topic=str, gathered=list, deliveries=list, position=Py_ssize_t,
        call=ServerCall, read=tuple, own_group=str, own_topic=str, entries=list, places=list,
    )
    cdef Py_ssize_t _take_alike(self, list calls, Py_ssize_t start) except -1

    @cython.locals(
        counts=dict, first=Py_ssize_t, number=Py_ssize_t, entries=list, statuses=list, place=Py_ssize_t, call=ServerCall
    )
    cdef _answer(self, list calls, Py_ssize_t start, list gathered, str topic, dict errors, object arrived_s)

    cdef bint _answer_others(self, ServerCall call) except -1

    cdef list _acknowledge(self, str group, str topic, list handles)
