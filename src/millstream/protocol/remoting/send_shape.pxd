# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.record_encoder cimport PlainRecord

cdef Py_ssize_t _ZERO, _NINE, _QUOTE, _BACKSLASH, _FIRST_PRINTABLE, _LAST_PRINTABLE, _TIME_DIGITS, _QUEUE_DIGITS, _OPAQUE_DIGITS
cdef Py_ssize_t _IS_OPAQUE, _IS_QUEUE, _IS_VALUE, _IS_ID, _IS_TAG

@cython.locals(byte=Py_ssize_t)
cdef Py_ssize_t _value_end(bytes data, Py_ssize_t at, Py_ssize_t end) except -2


cdef class SentRecord(PlainRecord):
    cdef public long long opaque


cdef class SendShape:
    cdef public dict fields
    cdef public tuple names
    cdef public str topic
    cdef public object code
    cdef list _pieces, _kinds, _stored
    cdef object _flag, _language, _version

    @cython.locals(
        pieces=list, kinds=list, stored=list, record=SentRecord, parts=list, at=Py_ssize_t, values=Py_ssize_t,
        number=Py_ssize_t, piece=bytes, kind=Py_ssize_t, begin=Py_ssize_t, value=cython.longlong, digits=Py_ssize_t, most=Py_ssize_t,
        text=bytes, last=bytes,
    )
    cpdef SentRecord read(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)

    @cython.locals(ext=dict)
    cpdef object command(self, SentRecord record)


cdef class SendRun:
    cdef public SendShape shape
    cdef public list records


cdef class SendShapes:
    cdef public SendShape last
    cdef list _shapes
    cdef bint _learns
    cdef Py_ssize_t _misses

    @cython.locals(last=SendShape, record=SentRecord, shape=SendShape)
    cpdef SentRecord read(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)

    cpdef object decode(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)
