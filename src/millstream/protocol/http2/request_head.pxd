# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython


cdef class RequestHead:
    cdef public object method, scheme, path, authority, content_length
    cdef public dict metadata

@cython.locals(pseudo=dict, count=Py_ssize_t, metadata=dict, name=str, value=str, are_text=bint)
cpdef read_request_head(list headers)

cpdef dict read_trailers(list headers)

@cython.locals(values=list, text=str)
cdef bint _check_values(list headers) except -1

@cython.locals(metadata=dict, known=set, name=str, value=str)
cdef dict _read_regular(list headers, bint are_text)

cdef bint _check_header(str name, str value, dict metadata) except -1
