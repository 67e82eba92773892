# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

@cython.locals(
    buckets=list, entries=Py_ssize_t, records_since_rest=Py_ssize_t, records=list, topic=bytes, text=bytes, keys=list,
    key=bytes, found=cython.longlong, last_topic=bytes,
)
cdef object _gather(object log, object begin, object end, object rest)
