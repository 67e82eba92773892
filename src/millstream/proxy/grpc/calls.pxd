# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.transport.grpc.call cimport ServerCall


cdef class MessagingCalls:
    cdef object _adapter, _clock, _loop, _open_calls, _plain, _requests
    cdef bint _checks_callers
    cdef dict _streams

    cpdef admit(self, ServerCall call)

    @cython.locals(position=Py_ssize_t, count=Py_ssize_t, call=ServerCall, name=str)
    cpdef serve(self, list calls)
