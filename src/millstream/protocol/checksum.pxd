# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef long long _KEPT_BITS, _ZERO, _END, _DIGITS
cdef Py_ssize_t _CHECKSUM_BYTES
cdef bytes _START
cdef tuple _ENDS, _LOWEST_FIRST

@cython.locals(low=bytes, middle=bytes, high=bytes)
cpdef bytes checksum_property(long long crc)

@cython.locals(end=Py_ssize_t, digit=cython.uchar)
cpdef bint is_checksum_at(bytes data, Py_ssize_t at, long long crc) except -1
