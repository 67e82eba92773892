# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.broker.queues.ledger cimport Ledger

cdef long long _MAX_BYTES
cdef Py_ssize_t _MAX_MESSAGES
cdef int _READ


cdef class DeliveredRun:
    cdef public Ledger ledger
    cdef public object queue_id, queue_offset, pop_time_ms, now_ms
    cdef public bytes data
    cdef public list places


cdef class RunPopper:
    cdef public object popper

    @cython.locals(
        left=Py_ssize_t, left_bytes=cython.longlong, runs=list, queues=list, ledgers=list, number=Py_ssize_t,
        ledger=Ledger, count=Py_ssize_t, data=bytes, places=list,
    )
    cpdef list find(self, object request)

    @cython.locals(run=DeliveredRun, count=Py_ssize_t)
    cpdef take(self, object request, object runs)

cdef bint _has_plain_queues(object topic) except -1
