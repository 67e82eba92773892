"""What brokers say to clients of this proxy, passed on to them: news of a group, replies, and tools' questions."""

from __future__ import annotations

from millstream.broker.remoting.client_requests import ask_client
from millstream.model.properties import REPLY_TO_CLIENT, decode_properties
from millstream.protocol.remoting.codes import RequestCode, ResponseCode
from millstream.protocol.remoting.command import FLAG_ONEWAY, RemotingCommand
from millstream.proxy.remote.broker_callbacks import BrokerCallbacks
from millstream.proxy.remoting.clients import ProxyClientHandlers

__all__ = ["NotificationForwarder"]


class NotificationForwarder:
    """Codes 40, 220, 221, 307, 309 and 326, as brokers send them."""

    def __init__(self, hearing: BrokerCallbacks, clients: ProxyClientHandlers) -> None:
        self._clients = clients
        hearing.by_code[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] = self._members_changed
        hearing.by_code[RequestCode.RESET_CONSUMER_CLIENT_OFFSET] = self._reset
        for code in (
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        ):
            hearing.by_code[code] = self._ask

    def _members_changed(self, command: RemotingCommand) -> None:
        self._clients.consumers.tell_all(command.ext.get("consumerGroup", ""))

    def _reset(self, command: RemotingCommand) -> None:
        group = command.ext.get("group", "")
        for connection in dict.fromkeys(member.connection for member in self._clients.consumers.online(group)):
            connection.send(RemotingCommand(command.code, dict(command.ext), command.body, flag=FLAG_ONEWAY))

    async def _ask(self, command: RemotingCommand) -> RemotingCommand:
        client_id = _client_of(command)
        connection = self._clients.connection_of(client_id)
        if connection is None:
            remark = f"The client {client_id[:200]!r} is not at this proxy."
            return command.response(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        answer = await ask_client(connection, command.code, dict(command.ext), command.body)
        return command.response(answer.code, ext=answer.ext, remark=answer.remark, body=answer.body)


def _client_of(command: RemotingCommand) -> str:
    if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
        held = decode_properties(command.ext.get("properties", "").encode())
        return held.get(REPLY_TO_CLIENT, "")
    return command.ext.get("clientId", "")
