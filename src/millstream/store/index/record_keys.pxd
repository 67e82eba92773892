# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef Py_ssize_t _MIN_TAIL_BYTES
cdef long long _HOSTS_IPV6, _UNUSUAL

@cython.locals(keys=list)
cpdef list keys_of(bytes text)

@cython.locals(
    records=list, data_bytes=Py_ssize_t, position=Py_ssize_t, last=Py_ssize_t, size=Py_ssize_t, magic=cython.longlong,
    own_log_offset=cython.longlong, flags=cython.longlong, stored_ms=cython.longlong, body_bytes=Py_ssize_t,
    following=Py_ssize_t, body=Py_ssize_t, topic=Py_ssize_t, end_of_topic=Py_ssize_t, properties=Py_ssize_t,
    usual_bytes=Py_ssize_t, text=bytes,
)
cpdef tuple walked_records(bytes data, long long log_offset)
