# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef unsigned char _MESSAGES, _TOPIC, _USER_PROPERTY, _SYSTEM, _BODY, _NAME, _ENTRY_NAME, _ENTRY_VALUE
cdef unsigned char _TAG, _KEY, _MESSAGE_ID, _DIGEST, _ENCODING, _TYPE, _BORN_TIME, _BORN_HOST, _SECONDS, _NANOS
cdef unsigned char _PLAIN_TYPES
cdef Py_ssize_t _MAX_LENGTH_BYTES, _MAX_SECONDS_BYTES


@cython.locals(
    size=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, behind=Py_ssize_t, length=Py_ssize_t,
    field=cython.uchar, inner=cython.uchar, value=cython.uchar, has_system=bint,
    born_ms=cython.longlong, encoding=cython.int, topic=str, body=bytes, message_id=str, tag=str, born_host=str,
    keys=list, user=dict, held=dict,
)
cdef tuple _read_request(bytes raw)

# A byte is as wide as the value, because it is shifted by up to 35 bits.
@cython.locals(value=cython.longlong, byte=cython.longlong, shift=cython.int, place=Py_ssize_t)
cdef (long long, Py_ssize_t) _read_number(bytes raw, Py_ssize_t at, Py_ssize_t most_bytes) except *

@cython.locals(length=Py_ssize_t, behind=Py_ssize_t)
cdef bint _read_entry(bytes raw, Py_ssize_t at, Py_ssize_t end, dict user) except -1

@cython.locals(seconds=cython.longlong, nanos=cython.longlong)
cdef long long _read_time_ms(bytes raw, Py_ssize_t at, Py_ssize_t end) except? -2

@cython.locals(length=Py_ssize_t)
cdef bint _is_digest(bytes raw, Py_ssize_t at, Py_ssize_t end) except -1
