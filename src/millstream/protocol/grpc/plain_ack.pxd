# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef unsigned char _GROUP, _TOPIC, _ENTRY, _NAME, _MESSAGE_ID, _HANDLE
cdef Py_ssize_t _ONE_BYTE, _LONG, _SHORT
cdef int _SPACE, _ZERO
cdef bint _IS_COMPILED
cdef bytes _ANSWER_STATUS, _ANSWER_ENTRY, _ENTRY_STATUS

cpdef tuple read_plain_ack(bytes raw, bytes broker_name, Py_ssize_t max_entries)

@cython.locals(
    size=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, more=Py_ssize_t, field=cython.uchar, group=str,
    topic=str, entries=list, deliveries=list, entry=bytes, delivery=tuple,
)
cdef tuple _read_request(bytes raw, bytes broker_name, Py_ssize_t max_entries)

cdef str _read_name(bytes raw, Py_ssize_t at, Py_ssize_t end)

@cython.locals(
    popped=cython.longlong, queue=cython.longlong, offset=cython.longlong, _=cython.longlong, broker_end=Py_ssize_t
)
cdef tuple _read_handle(bytes raw, Py_ssize_t at, Py_ssize_t end, bytes broker_name)

@cython.locals(start=Py_ssize_t, last=Py_ssize_t, value=cython.longlong, digit=cython.int)
cdef (long long, Py_ssize_t) _read_number(bytes raw, Py_ssize_t at, Py_ssize_t end, Py_ssize_t digits) except *

cpdef str handle_of(bytes entry)

@cython.locals(parts=list, last=bytes, end=bytes, entry=bytes, own=bytes, number=Py_ssize_t)
cpdef bytes encode_ack_answer(bytes status, list entries, list statuses)
