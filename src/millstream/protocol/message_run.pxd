# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef Py_ssize_t _FIXED_BYTES, _CHECKSUM_BYTES, _END_OF_VALUE

@cython.locals(
    messages=list, last_topic=bytes, last_born=bytes, last_store=bytes, last_flag=cython.longlong, topic=str,
    start=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t, system_flag=cython.longlong, born_host=bytes, store_host=bytes,
    body_bytes=cython.longlong, checked=Py_ssize_t, body_start=Py_ssize_t, body_end=cython.longlong,
    topic_end=Py_ssize_t, text_start=Py_ssize_t, name=bytes, text=str, properties=dict, pair=str,
)
cpdef list decode_run(bytes data, list places)
