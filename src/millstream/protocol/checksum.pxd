# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef long long _KEPT_BITS
cdef tuple _ENDS, _LOWEST_FIRST
cdef bytes _START
cdef Py_ssize_t _START_BYTES, _DIGITS
cdef int _ZERO, _END_OF_VALUE

cdef bytearray _PROPERTY
cdef bint _IS_COMPILED

@cython.locals(low=bytes, middle=bytes, high=bytes, written=bytearray, left=cython.uint, place=Py_ssize_t, digit=cython.uchar)
cpdef bytes checksum_property(long long crc)

@cython.locals(place=Py_ssize_t, byte=cython.uchar)
cpdef write_number(bytearray buffer, Py_ssize_t at, Py_ssize_t size, long long number)

@cython.locals(number=Py_ssize_t, place=Py_ssize_t, first_digit=Py_ssize_t, left=cython.uint)
cpdef bint has_checksum(bytes data, Py_ssize_t at, long long crc) except -1
