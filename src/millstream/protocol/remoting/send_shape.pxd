# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef Py_ssize_t _OPAQUE_DIGITS, _ZERO, _NINE, _QUOTE, _FIRST_PRINTABLE, _LAST_PRINTABLE

@cython.locals(byte=Py_ssize_t)
cdef Py_ssize_t _text_end(bytes data, Py_ssize_t at, Py_ssize_t end) except -2

@cython.locals(at=Py_ssize_t, digits=Py_ssize_t)
cdef Py_ssize_t _digits_end(bytes data, Py_ssize_t start, Py_ssize_t end) except -2


cdef class SendShape:
    cdef list _names, _pieces
    cdef dict _ext
    cdef object _code, _flag, _language, _version

    @cython.locals(
        pieces=list, names=list, ext=dict, at=Py_ssize_t, begin=Py_ssize_t, opaque=cython.longlong, number=Py_ssize_t,
        piece=bytes, name=str, place=Py_ssize_t, text=str, last=bytes,
    )
    cpdef object read(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)


cdef class SendShapes:
    cdef list _shapes
    cdef SendShape _last
    cdef bint _learns
    cdef Py_ssize_t _misses

    @cython.locals(last=SendShape)
    cpdef object decode(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)

    @cython.locals(shape=SendShape)
    cdef object _decode_other(self, bytes data, Py_ssize_t start, Py_ssize_t body_start, Py_ssize_t end)
