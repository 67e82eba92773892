# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.amqp.content_intake cimport ContentIntake, HeldContent

cdef int _AWAITS_HEADER, _CLOSED, _CLOSING


cdef class AmqpCore:
    cdef object _limits, _product, _version, _agreed
    cdef int _state
    cdef dict _channels
    cdef HeldContent _held
    cdef bytes _rest
    cdef list _outgoing
    cdef double _began_s, _read_s, _sent_s
    cdef bint _is_blocked
    cdef public object failure

    @cython.locals(size=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, limit=Py_ssize_t)
    cdef Py_ssize_t _take_frames(self, bytes data, Py_ssize_t at, list events) except -1
