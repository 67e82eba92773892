"""The broker's answers over remoting: one module per group of request codes."""

from __future__ import annotations

from functools import partial

from millstream.broker.broker import Broker
from millstream.broker.remoting.access import access_handlers
from millstream.broker.remoting.administration import AdministrationHandlers, GroupHandlers, StaticTopicHandlers
from millstream.broker.remoting.bulk import BulkFetches, BulkHandlers
from millstream.broker.remoting.client_requests import ClientRequestHandlers, ReplyHandlers
from millstream.broker.remoting.clients import ConsumerRegistry
from millstream.broker.remoting.cold import ColdRangeHandlers
from millstream.broker.remoting.cold_checks import ColdCheckHandlers
from millstream.broker.remoting.heartbeats import ClientHandlers, ClientLiveness
from millstream.broker.remoting.offsets import OffsetHandlers, RangeHandlers
from millstream.broker.remoting.popping import PopHandlers
from millstream.broker.remoting.producers import ProducerHandlers, ProducerRegistry, TransactionHandlers
from millstream.broker.remoting.proxies import ProxyHandlers, ReportHandlers
from millstream.broker.remoting.queue_sharing import AssignmentHandlers, LockHandlers
from millstream.broker.remoting.reading import PullHandler, SearchHandlers
from millstream.broker.remoting.returning import DeadLetterHandlers, ReturnHandlers
from millstream.broker.remoting.sending import SendHandlers
from millstream.broker.remoting.tools import tool_handlers
from millstream.broker.traffic import Flow
from millstream.protocol.remoting.codes import RequestCode
from millstream.security.guard import Guard
from millstream.transport.remoting_connection import Handler

__all__ = ["broker_handlers"]


def broker_handlers(
    broker: Broker,
    guard: Guard | None = None,
    consumers: ConsumerRegistry | None = None,
    producers: ProducerRegistry | None = None,
) -> dict[int, Handler]:
    """The handlers of a broker's port, by request code; for one started broker. `guard` is its access control.

    `consumers` and `producers` are those who are there, for others to look at as well.
    """
    consumers = consumers or ConsumerRegistry()
    producers = producers or ProducerRegistry()
    send = SendHandlers(broker)
    pull = PullHandler(broker.queues, consumers, broker.suggest_reader)
    offsets = OffsetHandlers(broker)
    ranges = RangeHandlers(broker.queues, broker.name, partial(broker.maintenance.traffic.rate, Flow.PUT))
    liveness = ClientLiveness(broker.clock, consumers, producers)
    clients = ClientHandlers(broker, liveness)
    groups = GroupHandlers(broker, consumers)
    dead_letters = DeadLetterHandlers(broker)
    administration = AdministrationHandlers(broker)
    bulk = BulkHandlers(broker)
    search = SearchHandlers(broker.queues, broker.clock)
    locks = LockHandlers(broker)
    pop = PopHandlers(broker)
    returns = ReturnHandlers(broker, consumers)
    transactions = TransactionHandlers(broker, guard)
    producers.guard = guard
    broker.delivery.watch_transactions(producers.ask)
    reply = ReplyHandlers(broker, producers)
    assignment = AssignmentHandlers(broker, consumers)
    members = ProducerHandlers(broker, producers)
    questions = ClientRequestHandlers(broker, consumers)
    consumers.on_leave.append(locks.note_leave)
    proxies = ProxyHandlers(broker)
    report = ReportHandlers(broker)
    cold = ColdCheckHandlers(broker)
    static = StaticTopicHandlers(broker)
    return {
        **access_handlers(guard),
        **tool_handlers(broker, consumers),
        RequestCode.SEND_MESSAGE: send.send,
        RequestCode.SEND_MESSAGE_V2: send.batches,
        RequestCode.SEND_BATCH_MESSAGE: send.send_v2,
        RequestCode.RECALL_MESSAGE: send.recall,
        RequestCode.PULL_MESSAGE: pull,
        RequestCode.LITE_PULL_MESSAGE: pull,
        RequestCode.BULK_PUT: bulk.put,
        RequestCode.BULK_FETCH: BulkFetches(broker.queues).fetch,
        RequestCode.COLD_RANGES: ColdRangeHandlers(broker).ranges,
        RequestCode.QUERY_MESSAGE: search.by_key,
        RequestCode.VIEW_MESSAGE_BY_ID: search.by_offset,
        RequestCode.GET_MAX_OFFSET: ranges.max_offset,
        RequestCode.GET_MIN_OFFSET: ranges.min_offset,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: ranges.offset_by_time,
        RequestCode.GET_EARLIEST_MSG_STORE_TIME: ranges.earliest_stored,
        RequestCode.GET_TOPIC_STATS_INFO: ranges.topic_statistics,
        RequestCode.QUERY_CONSUMER_OFFSET: offsets.query_consumer_offset,
        RequestCode.UPDATE_CONSUMER_OFFSET: offsets.update_consumer_offset,
        RequestCode.HEART_BEAT: clients.heartbeat,
        RequestCode.UNREGISTER_CLIENT: liveness.unregister,
        RequestCode.CHECK_CLIENT_CONFIG: liveness.check,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: clients.consumer_list,
        RequestCode.GET_SUBSCRIPTION_GROUP_CONFIG: groups.group,
        RequestCode.GET_CONSUME_STATS: groups.progress,
        RequestCode.GET_CONSUMER_CONNECTION_LIST: groups.members,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: groups.reset,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: groups.groups_of_topic,
        RequestCode.QUERY_TOPICS_BY_CONSUMER: groups.topics_of_group,
        RequestCode.LIST_DEAD_LETTERS: dead_letters.page,
        RequestCode.REDRIVE_DEAD_LETTERS: dead_letters.redrive,
        RequestCode.UPDATE_AND_CREATE_TOPIC: administration.create_topic,
        RequestCode.DELETE_TOPIC_IN_BROKER: administration.delete_topic,
        RequestCode.GET_ALL_TOPIC_CONFIG: administration.topics,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP: administration.create_group,
        RequestCode.DELETE_SUBSCRIPTION_GROUP: administration.delete_group,
        RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG: administration.groups,
        RequestCode.LOCK_BATCH_MQ: locks.lock,
        RequestCode.UNLOCK_BATCH_MQ: locks.unlock,
        RequestCode.POP_MESSAGE: pop.pop,
        RequestCode.ACK_MESSAGE: pop.ack,
        RequestCode.BATCH_ACK_MESSAGE: pop.batch_ack,
        RequestCode.CHANGE_MESSAGE_INVISIBLE_TIME: pop.change,
        RequestCode.PEEK_MESSAGE: pop.peek,
        RequestCode.NOTIFICATION: pop.notify,
        RequestCode.POLLING_INFO: pop.polling,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: administration.create_topics,
        RequestCode.GET_TOPIC_CONFIG: static.state,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP_LIST: administration.create_groups,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: administration.own_topics,
        RequestCode.CONSUMER_SEND_MSG_BACK: returns.send_back,
        RequestCode.QUERY_ASSIGNMENT: assignment.query,
        RequestCode.SET_MESSAGE_REQUEST_MODE: assignment.set_mode,
        RequestCode.END_TRANSACTION: transactions.end,
        RequestCode.SEND_REPLY_MESSAGE: reply.reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: reply.reply_v2,
        RequestCode.END_TRANSACTION_BY_ID: proxies.end_transaction,
        RequestCode.BURY_DELIVERY: proxies.bury,
        RequestCode.SYNC_LITE_SUBSCRIPTION: proxies.sync_lite,
        RequestCode.LEAVE_LITE_TOPICS: proxies.leave_lite,
        RequestCode.STORE_STATE: proxies.store_state,
        RequestCode.RELEASE_DELIVERIES: proxies.release_deliveries,
        RequestCode.GET_ALL_CONSUMER_OFFSET: offsets.all_positions,
        RequestCode.GET_PRODUCER_CONNECTION_LIST: members.members,
        RequestCode.GET_ALL_PRODUCER_INFO: members.all,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: questions.status,
        RequestCode.GET_CONSUMER_RUNNING_INFO: questions.running_info,
        RequestCode.CONSUME_MESSAGE_DIRECTLY: questions.consume_directly,
        RequestCode.GET_BROKER_REPORT: report.report,
        RequestCode.PUT_BROKER_PERMISSION: report.permission,
        RequestCode.GET_COLD_STATUS: cold.status,
        RequestCode.VERIFY_COLD_OBJECTS: cold.verify,
        RequestCode.COLLECT_ORPHANS: cold.collect,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: static.change,
        RequestCode.SEGMENT_POP: static.pop_segment,
    }
