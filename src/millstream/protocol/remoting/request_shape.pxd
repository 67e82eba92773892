# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef Py_ssize_t _ZERO, _NINE


cdef class RequestShape:
    cdef public dict fields
    cdef public object code
    cdef list _pieces, _kinds
    cdef object _flag, _language, _version

    cpdef object read(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)

    cpdef object command(self, object request)

    cpdef object make_command(self, dict ext, bytes body, object opaque)


cdef class ShapedRun:
    cdef public RequestShape shape
    cdef public list requests


@cython.locals(at=Py_ssize_t)
cpdef Py_ssize_t digits_end(bytes data, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t most) except -2

@cython.locals(value=cython.longlong, at=Py_ssize_t)
cpdef long long number_of(bytes data, Py_ssize_t begin, Py_ssize_t end) except? -1
