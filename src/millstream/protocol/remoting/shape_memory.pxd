# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.remoting.request_shape cimport RequestShape


cdef class ShapeMemory:
    cdef public RequestShape last
    cdef list _shapes
    cdef bint _learns
    cdef Py_ssize_t _misses

    @cython.locals(last=RequestShape, shape=RequestShape)
    cpdef object read(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)

    cpdef object decode(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)
