# Types of the compiled form; the .py beside it is the source, and runs as it is.
cimport cython

from millstream.protocol.checksum cimport checksum_property, write_number

cdef Py_ssize_t _CHECKSUM_BYTES, _LARGE_BODY_BYTES, _MAX_PROPERTIES_BYTES
cdef long long _CRC_BITS
cdef bint _IS_COMPILED
cdef Py_ssize_t _HEAD_BYTES, _SIZE_AT, _MAGIC_AT, _BODY_CRC_AT, _QUEUE_AT, _QUEUE_OFFSET_AT, _LOG_OFFSET_AT
cdef Py_ssize_t _SYSTEM_FLAG_AT, _BORN_AT


cdef class PlainRecord:
    cdef public long long queue_id, system_flag, born_timestamp_ms
    cdef public long long queue_offset, log_offset, size_bytes, store_timestamp_ms
    cdef public str topic, message_id, tag
    cdef public bytes body, stored_properties
    cdef public object born_host
    cdef public tuple light_queues
    cdef dict _held


cdef class RecordEncoder:
    cdef public long long store_timestamp_ms
    cdef bytes _born, _end, _length_field, _store, _topic_field
    cdef bytearray _front
    cdef object _born_host, _pack, _topic
    cdef long long _front_ms, _host_flags
    cdef Py_ssize_t _fixed_bytes, _front_bytes, _front_magic, _length, _magic

    cpdef bytes encode(self, object message, object queue_id, object queue_offset, object log_offset)

    @cython.locals(
        body=bytes, properties=bytes, body_bytes=Py_ssize_t, properties_bytes=Py_ssize_t, size=Py_ssize_t,
        front=bytearray, system_flag=cython.longlong, written=bytes,
    )
    cpdef bytes encode_plain(self, PlainRecord record, long long queue_offset, long long log_offset, bytes more=*)

    cdef _renew_front(self, Py_ssize_t body_bytes)

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
