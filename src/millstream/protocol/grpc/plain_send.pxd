# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef unsigned char _MESSAGES, _TOPIC, _USER_PROPERTY, _SYSTEM, _BODY, _NAME, _ENTRY_NAME, _ENTRY_VALUE
cdef unsigned char _TAG, _KEY, _MESSAGE_ID, _DIGEST, _ENCODING, _TYPE, _BORN_TIME, _BORN_HOST, _SECONDS, _NANOS
cdef Py_ssize_t _PLAIN_TYPES, _MAX_LENGTH_BYTES, _MAX_SECONDS_BYTES

@cython.locals(
    size=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, field=cython.uchar, topic=str, body=bytes,
    system=tuple, user=dict, held=dict,
)
cdef tuple _read_request(bytes raw)

@cython.locals(
    behind=Py_ssize_t, length=Py_ssize_t, field=cython.uchar, message_id=str, born_host=str, tag=str, keys=list,
    born_ms=cython.longlong, encoding=Py_ssize_t,
)
cdef tuple _read_system(bytes raw, Py_ssize_t at, Py_ssize_t end)

cdef str _read_name(bytes raw, Py_ssize_t at, Py_ssize_t end)

# A byte is as wide as the value, because it is shifted by up to 35 bits.
@cython.locals(value=cython.longlong, byte=cython.longlong, shift=cython.int, place=Py_ssize_t)
cdef (long long, Py_ssize_t) _read_number(bytes raw, Py_ssize_t at, Py_ssize_t most_bytes) except *

@cython.locals(length=Py_ssize_t, behind=Py_ssize_t)
cdef bint _read_entry(bytes raw, Py_ssize_t at, Py_ssize_t end, dict user) except -1

@cython.locals(seconds=cython.longlong, nanos=cython.longlong)
cdef long long _read_time_ms(bytes raw, Py_ssize_t at, Py_ssize_t end) except? -2

@cython.locals(length=Py_ssize_t)
cdef bint _is_digest(bytes raw, Py_ssize_t at, Py_ssize_t end) except -1
