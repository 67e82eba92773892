# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.checksum cimport checksum_property

cdef Py_ssize_t _CHECKSUM_BYTES, _LARGE_BODY_BYTES, _MAX_PROPERTIES_BYTES
cdef long long _CRC_BITS


cdef class PlainRecord:
    cdef public long long queue_id, system_flag, born_timestamp_ms
    cdef public str topic, message_id, tag
    cdef public bytes body, stored_properties
    cdef public object born_host
    cdef public tuple light_queues
    cdef dict _held


cdef class RecordEncoder:
    cdef public long long store_timestamp_ms
    cdef bytes _body_field, _born, _length_field, _middle, _store, _topic_field
    cdef object _born_host, _pack, _topic
    cdef long long _host_flags, _middle_ms
    cdef Py_ssize_t _body_bytes, _fixed_bytes, _length, _magic

    cpdef bytes encode(self, object message, object queue_id, object queue_offset, object log_offset)

    @cython.locals(
        body=bytes, properties=bytes, body_bytes=Py_ssize_t, properties_bytes=Py_ssize_t, head=bytes, written=bytes,
    )
    cpdef bytes encode_plain(self, PlainRecord record, object queue_offset, object log_offset, bytes more=*)

    @cython.locals(
        properties_bytes=Py_ssize_t, field=bytes, body_bytes=Py_ssize_t, head=bytes, end=bytes, record=bytes,
    )
    cdef bytes _write(
        self, object topic, object body, long long body_crc, bytes properties, object queue_id, object flag,
        object queue_offset, object log_offset, object system_flag, object born_timestamp_ms, object born_host,
        object reconsume_times, object prepared_transaction_offset,
    )

    cdef _take_neighbours(self, object topic, object born_host, Py_ssize_t properties_bytes)

    cdef _take_born_host(self, object born_host)
