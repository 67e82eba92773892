# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef Py_ssize_t _MAX_LENGTH_BYTES


cdef class PacketFrames:
    cdef public object max_bytes, failure
    cdef bytearray _held
    cdef Py_ssize_t _missing_bytes

    @cython.locals(
        frames=list, position=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, start=Py_ssize_t, after=Py_ssize_t,
        limit=Py_ssize_t,
    )
    cpdef list feed(self, bytes chunk)

    @cython.locals(length=Py_ssize_t, count=Py_ssize_t, byte=Py_ssize_t)
    cdef tuple _long_length(self, bytes chunk, Py_ssize_t position)
