# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.transport.grpc.call cimport ServerCall


cdef class PlainSends:
    cdef object _adapter, _delivery, _clock

    @cython.locals(
        taken=list, records=list, position=Py_ssize_t, call=ServerCall, sent=tuple, name=str, held=dict, body=bytes,
        born_ms=object, encoding=Py_ssize_t, user_properties=object,
    )
    cpdef Py_ssize_t take(self, list calls, Py_ssize_t start) except -1
