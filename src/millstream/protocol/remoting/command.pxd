# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef Py_ssize_t _INT16_MAX

@cython.locals(remark=bytes, parts=list, key=str, value=str, key_bytes=bytes, value_bytes=bytes, ext=bytes, head=bytes)
cdef bytes _encode_binary(object command)

@cython.locals(
    language=Py_ssize_t, remark_bytes=Py_ssize_t, ext_start=Py_ssize_t, ext_bytes=Py_ssize_t, ext=dict, remark=str
)
cdef object _decode_binary(bytes header)

@cython.locals(
    ext=dict, end=Py_ssize_t, key_bytes=Py_ssize_t, key_end=Py_ssize_t, value_start=Py_ssize_t,
    value_bytes=Py_ssize_t, value_end=Py_ssize_t,
)
cdef dict _decode_binary_ext(bytes header, Py_ssize_t position)
