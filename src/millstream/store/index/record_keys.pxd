# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.store.record_run cimport number_at

cdef Py_ssize_t _MIN_TAIL_BYTES, _MAGIC_AT, _LOG_OFFSET_AT, _FLAGS_AT, _STORED_MS_AT, _BODY_BYTES_AT
cdef long long _NEGATIVE, _V1, _V2
cdef bint _IS_COMPILED
cdef long long _HOSTS_IPV6, _UNUSUAL

@cython.locals(keys=list)
cpdef list keys_of(bytes text)

@cython.locals(number=cython.longlong)
cdef long long _read_signed(bytes data, Py_ssize_t at) except? -1

@cython.locals(
    records=list, data_bytes=Py_ssize_t, position=Py_ssize_t, last=Py_ssize_t, size=Py_ssize_t, magic=cython.longlong,
    own_log_offset=cython.longlong, flags=cython.longlong, stored_ms=cython.longlong, body_bytes=Py_ssize_t,
    following=Py_ssize_t, body=Py_ssize_t, topic=Py_ssize_t, end_of_topic=Py_ssize_t, properties=Py_ssize_t,
    usual_bytes=Py_ssize_t, text=bytes,
)
cpdef tuple walked_records(bytes data, long long log_offset)
