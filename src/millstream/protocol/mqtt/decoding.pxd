# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

cdef int _PUBLISH
cdef object _V5, _ACKNOWLEDGEMENTS
cdef dict _FLAGS, _BY_FIRST_BYTE, _DECODERS, _REASONS

cpdef object decode_packet(int first, bytes body, object version)

@cython.locals(
    qos=cython.int, position=Py_ssize_t, size=Py_ssize_t, packet_id=Py_ssize_t, topic_bytes=bytes, topic=str,
)
cpdef object decode_publish(int first, bytes body, object version)

@cython.locals(packet_id=Py_ssize_t)
cpdef object decode_acknowledgement(object packet, bytes body, object version)
