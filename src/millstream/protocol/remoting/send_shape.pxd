# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.record_encoder cimport PlainRecord
from millstream.protocol.remoting.request_shape cimport RequestShape, digits_end, number_of

cdef Py_ssize_t _QUOTE, _BACKSLASH, _FIRST_PRINTABLE, _LAST_PRINTABLE, _TIME_DIGITS, _QUEUE_DIGITS, _OPAQUE_DIGITS
cdef Py_ssize_t _IS_OPAQUE, _IS_QUEUE, _IS_VALUE, _IS_ID, _IS_TAG

@cython.locals(byte=Py_ssize_t)
cdef Py_ssize_t _value_end(bytes data, Py_ssize_t at, Py_ssize_t end) except -2


cdef class SentRecord(PlainRecord):
    cdef public long long opaque


cdef class SendShape(RequestShape):
    cdef public tuple names
    cdef public str topic
    cdef list _stored

    @cython.locals(
        pieces=list, kinds=list, stored=list, record=SentRecord, parts=list, at=Py_ssize_t, values=Py_ssize_t,
        number=Py_ssize_t, piece=bytes, kind=Py_ssize_t, begin=Py_ssize_t, value=cython.longlong, most=Py_ssize_t,
        text=bytes, last=bytes,
    )
    cpdef object read(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)

    @cython.locals(ext=dict)
    cpdef object command(self, object request)
