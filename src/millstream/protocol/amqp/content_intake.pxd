# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef Py_ssize_t _ACK_BYTES
cdef bytes _PUBLISH_ID, _ACK_ID


cdef class HeldContent:
    cdef public object held_bytes, missing_bytes


cdef class ContentIntake:
    cdef object _max_body_bytes, _publication
    cdef HeldContent _all
    cdef bint _wants_header
    cdef object _held_bytes, _missing_bytes
    cdef list _parts

    cdef object _note(self, object held_bytes, object missing_bytes)

    @cython.locals(number=bytes, at=Py_ssize_t, bits=cython.int)
    cpdef object take_method(self, bytes payload)

    @cython.locals(properties=bytes)
    cpdef object take_header(self, bytes payload)

    cpdef object take_body(self, bytes payload)
