"""The error catalogue: one row per user-visible error, with a number that never changes its meaning.

Ranges: 1xxx start and configuration, 2xxx names, 3xxx messages and consumption, 4xxx store, 5xxx connections,
6xxx stream jobs, 7xxx SQL, 8xxx traces, 9xxx rules. A number that is retired is not given away again.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CATALOGUE", "ErrorEntry", "find_entry"]


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One row: the stable number, a short name, what it means and what to do."""

    number: int
    name: str
    meaning: str
    remedy: str


def _rows(*rows: tuple[int, str, str, str]) -> dict[str, ErrorEntry]:
    return {name: ErrorEntry(number, name, meaning, remedy) for number, name, meaning, remedy in rows}


CATALOGUE: dict[str, ErrorEntry] = _rows(
    (1001, "PORT_IN_USE", "A listening port is taken by another process.", "Stop that process or choose another port."),
    (1002, "DATA_DIRECTORY_IN_USE", "Another process holds the data directory's lock.", "Stop it or choose another --dir."),
    (1003, "DATA_DIRECTORY_NOT_WRITABLE", "The data directory cannot be created or written.", "Choose another --dir or mend its permissions."),
    (1004, "BAD_CONFIGURATION", "A setting has an unknown name or a value out of its range.", "Correct the setting named in the message."),
    (1005, "ADDRESS_NOT_LOCAL", "The host to listen on is no address of this machine.", "Choose --host 127.0.0.1, 0.0.0.0 or an address of this machine."),
    (1006, "INTERNAL_ERROR", "The product met a state that it does not expect.", "Report it with the log of the server."),
    (1007, "EXTRA_MISSING", "A feature needs packages that are not installed.", 'Install the extra named in the message, as in pip install "millstream[streams]".'),
    (1010, "TLS_FILES", "The certificate or its key cannot be used.", "Name a certificate chain and its key in PEM: --tls-cert FILE --tls-key FILE."),
    (1011, "OPENSSL_MISSING", "A test certificate cannot be made without the program openssl.", "Install openssl, or name a certificate: --tls-cert FILE --tls-key FILE."),
    (1020, "CONFIGURATION_FILE", "A configuration file cannot be read.", "Name a readable file in TOML; millstream config reference prints one with all settings."),
    (1021, "UNKNOWN_SETTING", "A configuration file has a setting that there is not.", "Correct its name; millstream config reference shows all."),
    (1022, "ILLEGAL_SETTING", "A setting of a configuration file has a value of the wrong kind or out of its range.", "Correct it; millstream config reference shows what it may be."),
    (1023, "PROFILE_NOT_FOUND", "No profile has that name.", "See which there are: millstream profile list."),
    (1024, "CHILD_PROCESS_FAILED", "A process of the cluster did not start.", "See its words in the message and its log in the data directory."),
    (1030, "MESSAGE_SOURCE", "What is to be sent cannot be read.", "Name a readable file, or send standard input with -."),
    (1031, "NO_SUCH_MESSAGE", "No message with that id or key was found.", "Check the id, name its topic with --topic; messages older than the retention are gone."),
    (1032, "SEVERAL_MESSAGES", "More than one message has that key or id.", "Give the id of the one that is meant: millstream message get shows them."),
    (1033, "SEARCH_TOO_WIDE", "A message cannot be searched in so many topics.", "Name its topic with --topic."),
    (1034, "NOTHING_TO_CONSUME", "A benchmark has nothing to receive.", "Leave --topic out, so that a topic is made and filled, or name one with messages."),
    (2101, "TOPIC_NOT_FOUND", "The topic does not exist.", "Create it: millstream topic create NAME."),
    (2102, "TOPIC_EXISTS", "A topic of that name exists with other settings.", "Choose another name, or delete the topic first."),
    (2103, "ILLEGAL_TOPIC", "The topic's name is not legal or is reserved for the system.", "Use letters, digits, _ - % |, at most 127 characters."),
    (2104, "QUEUE_NOT_FOUND", "The topic has no queue of that number.", "Ask for the topic's queues: millstream topic describe NAME."),
    (2105, "FORBIDDEN", "The topic has no queue with the permission that the request needs.", "Change the topic's permission or use another topic."),
    (2110, "BROKER_DRAINED", "The broker is drained: it is read and takes no new messages.", "Send to another broker, or let it take messages again: millstream broker undrain NAME."),
    (2112, "BROKER_NOT_EMPTY", "The broker still holds messages that groups have not consumed.", "Wait for their consumers, and see what waits: millstream broker describe NAME."),
    (2201, "GROUP_NOT_FOUND", "The consumer group does not exist.", "Create it: millstream group create NAME."),
    (2202, "ILLEGAL_GROUP", "The group's name is not legal or is reserved for the system.", "Use letters, digits, _ - % |, at most 120 characters."),
    (2203, "GROUP_EXISTS", "A group of that name exists with other settings.", "Choose another name."),
    (2204, "GROUP_DISABLED", "The consumer group is switched off.", "Switch it on: millstream group update NAME --enable."),
    (2205, "ILLEGAL_GROUP_SETTING", "A setting of the consumer group is out of its range.", "Correct the setting named in the message."),
    (2301, "UNAUTHORIZED", "The credentials are missing or were not accepted.", "Give the client the keys of a user, our own by MILLSTREAM_ACCESS_KEY and MILLSTREAM_SECRET_KEY; the server's audit log has the reason."),
    (2302, "ACCESS_DENIED", "The user may not do that.", "Let a super user grant it: millstream acl grant USER ACTION RESOURCE."),
    (2303, "USER_NOT_FOUND", "The user does not exist.", "Create it: millstream acl user create NAME."),
    (2304, "USER_EXISTS", "A user of that name exists.", "Choose another name, or change it: millstream acl user update NAME."),
    (2305, "POLICY_NOT_FOUND", "The user has no such policy.", "Ask for what is there: millstream acl list USER."),
    (2306, "ILLEGAL_USER", "The user's name or secret is not legal.", "Use letters, digits, _ . @ - (64 at most) and a secret of 8 to 256 printable characters without blanks."),
    (2307, "ILLEGAL_POLICY", "A policy names resources, actions or addresses that there are not.", "Write Topic:orders, Group:billing*, Cluster:* or *; actions Pub, Sub, Create, Update, Delete, Get, List or All."),
    (2308, "LAST_SUPER_USER", "Without it nobody could administer access any more.", "Make another super user first."),
    (2309, "ACCESS_CONTROL_OFF", "The server runs without access control, so it has no users.", "Start it with --secure."),
    (2310, "USERS_NOT_KNOWN_YET", "A proxy goes by the users of its brokers, none of which has told them so far.", "Try again; if it stays, see in the proxy's log why its brokers do not tell them."),
    (2320, "SETTING_UNKNOWN", "There is no setting of that name.", "See docs/mqadmin.md for the settings that there are."),
    (2321, "SETTING_FIXED", "The setting cannot be changed while the server runs.", "Start the server with another value."),
    (2322, "ILLEGAL_SETTING", "The value of a setting is out of its range.", "Correct the value named in the message."),
    (2323, "KEY_VALUE_NOT_FOUND", "The nameserver keeps nothing under that key.", "Put it there first: mqadmin updateKvConfig."),
    (2324, "TOPIC_SETTING_FIXED", "The setting says how the topic's messages are stored, so it stays as it is.", "Make another topic with it."),
    (2340, "NOT_LEADER_FOR_QUEUE", "The queue of the static topic is stored by another broker now, or is being moved.", "Ask for the topic's route again and send there; clients do so by themselves."),
    (2341, "ILLEGAL_STATIC_TOPIC", "A static topic cannot have these settings.", "Use type normal or fifo, without batches and compaction."),
    (2342, "STATIC_TOPIC_STATE", "The brokers' mappings of a static topic contradict each other or the change.", "Finish what was begun: millstream topic remap NAME --brokers A,B."),
    (2343, "SEGMENT_UNREACHABLE", "An older part of the queue lies on a broker that does not answer.", "Start that broker again; it holds messages that were not moved."),
    (2344, "NOT_A_STATIC_TOPIC", "The topic's queues are bound to their brokers.", "Create a topic whose queues can be moved: millstream topic create NAME --static."),
    (2345, "BROKER_NOT_FOUND", "No broker of that name is registered.", "See which there are: millstream broker list."),
    (2325, "STATISTIC_UNKNOWN", "There is no statistic of that name, or none for that topic and group alone.", "Ask for TOPIC_PUT, GROUP_GET, DLQ_PUT, BROKER_PUT or BROKER_GET, each with _NUMS or _SIZE."),
    (2330, "CLIENT_THROTTLED", "A rule of the proxy lets the client have no more for now.", "Slow down, or ask the proxy's operator for more (throttle in its configuration)."),
    (3001, "BODY_EMPTY", "The message has no body.", "Send at least one byte."),
    (3002, "BODY_TOO_LARGE", "The message's body is over the limit.", "Split it, compress it, or put it elsewhere and send a reference."),
    (3003, "PROPERTIES_TOO_LARGE", "The message's properties are over the limit.", "Send fewer or shorter properties."),
    (3004, "ILLEGAL_TAG", "The tag is blank, has control characters or a |.", "Send one plain word as the tag."),
    (3005, "ILLEGAL_KEY", "A message key is blank or has control characters.", "Send printable keys."),
    (3006, "ILLEGAL_MESSAGE_GROUP", "The message group is blank, too long or has control characters.", "Use 1 to 64 printable bytes."),
    (3007, "ILLEGAL_PROPERTY", "A user property has a reserved name or control characters.", "Rename the property."),
    (3008, "MESSAGE_TYPE_MISMATCH", "The topic does not accept messages of this type.", "Send it to a topic for its type (millstream topic create NAME --type TYPE), or with what the topic's type needs."),
    (3009, "MESSAGE_MALFORMED", "The message or its batch cannot be read.", "Send well-formed messages of one topic per request."),
    (3010, "ILLEGAL_MESSAGE_ID", "The message id is blank.", "Send the id that the client library makes."),
    (3011, "ILLEGAL_DELIVERY_TIME", "The delivery time is beyond the limit.", "Choose an earlier time."),
    (3012, "MESSAGE_NOT_FOUND", "No such message waits for its time.", "It may have been delivered or recalled already."),
    (3013, "ILLEGAL_RECALL_HANDLE", "The recall handle cannot be read or is of another topic.", "Pass the handle that the send answered."),
    (3014, "TRANSACTION_NOT_FOUND", "No such transaction is known.", "Pass the transaction id that the send answered; the messages of an old one may be gone."),
    (3015, "ILLEGAL_TRANSACTION_ID", "The transaction id is blank or is not the message's.", "Pass the transaction id that the send answered."),
    (3016, "TRANSACTION_ENDED", "The transaction has ended otherwise already.", "Its outcome stands; send a new message if another one is needed."),
    (3017, "ILLEGAL_RECOVERY_TIME", "The time before a transaction is asked about is beyond the limit.", "Use at most an hour."),
    (3018, "CLIENT_NOT_CONNECTED", "The client has no open stream to this proxy.", "See which clients are connected, and ask again when it is back."),
    (3020, "ILLEGAL_PRIORITY", "The priority is no whole number from 0 on.", "Send a priority of 0 or more; the higher one goes first."),
    (3021, "ILLEGAL_LITE_TOPIC", "The lite topic's name is blank, too long or has other characters than letters, digits, _ and -.", "Use 1 to 64 of these characters."),
    (3022, "LITE_TOPIC_QUOTA_EXCEEDED", "The topic has as many lite topics as it may have.", "Let them expire (lite.topic.expiration), or use another topic of type LITE."),
    (3023, "LITE_SUBSCRIPTION_QUOTA_EXCEEDED", "The client has subscribed to as many lite topics as it may.", "Unsubscribe from some, or start another client."),
    (3101, "ILLEGAL_FILTER", "The filter expression cannot be read.", "Use * or tags joined by ||, or a condition in SQL92: docs/filters.md."),
    (3201, "INVALID_RECEIPT_HANDLE", "The receipt handle is unknown, was replaced or has expired.", "Receive the message again."),
    (3202, "ILLEGAL_INVISIBLE_TIME", "The invisible time is out of its range.", "Use 10 s to 12 h on receive, 0 s to 12 h on change."),
    (3203, "ILLEGAL_POLLING_TIME", "The request's deadline leaves no time for long polling.", "Use a longer request timeout."),
    (3204, "CLIENT_ID_REQUIRED", "The request carries no client id.", "Send the header x-mq-client-id."),
    (3205, "ILLEGAL_OFFSET", "The offset is outside of the queue.", "Ask for the queue's minimum and maximum first."),
    (3206, "TOO_MANY_REQUESTS", "A limit on waiting or unacknowledged work is reached.", "Slow down, acknowledge, or add consumers, then try again."),
    (3207, "UNSUPPORTED_CLIENT_TYPE", "The client type is not supported.", "Use a producer, or a push, simple or pull consumer."),
    (3208, "UNSUPPORTED_FEATURE", "The server does not offer this yet.", "See CHANGELOG.md for what is there."),
    (3210, "OFFSET_NOT_FOUND", "The group has no position in the queue.", "Ask for the queue's first or last offset and begin there."),
    (3211, "DEAD_LETTER_ORIGIN_UNKNOWN", "The dead letter does not say which topic it comes from.", "Name a topic: millstream dlq redrive GROUP --to TOPIC."),
    (3220, "ILLEGAL_NAMESPACE", "The namespace of the call is not legal, or the call names two.", "Use one namespace of letters, digits, _ and -, at most 64 characters."),
    (3230, "RETURNED_MESSAGE_UNKNOWN", "A consumer gives back a message that is not there, or not its group's.", "Receive it again; RocketMQ's clients send a copy of it to the group's retry topic by themselves."),
    (4001, "STORE_FAILED", "The log cannot be written any more; nothing is acknowledged.", "Look at the disk, then restart the server."),
    (4002, "RECORD_DAMAGED", "A stored record fails its checksum and is not served.", "Restore the data directory from a copy if the record is needed, or make the queue's files again (docs/durability.md)."),
    (4003, "STORE_FORMAT", "A file of the data directory has an unknown format.", "Use the release that wrote it, or another --dir."),
    (4004, "DISK_FULL", "The disk has no room for the log.", "Free space or move the data directory."),
    (4005, "FLUSH_TIMEOUT", "The disk did not confirm the write in time; the message is stored but may not be durable.", "Look at the disk's load; the client may send again."),
    (5001, "UNREACHABLE", "The server does not answer at that address.", "Start it with millstream quickstart, or name it with --nameserver."),
    (5002, "TIMED_OUT", "The answer did not come in time.", "Try again, or allow more time."),
    (5003, "PROTOCOL_VIOLATION", "Bytes arrived that are not of the protocol; the connection was closed.", "Check that client and port belong together."),
    (5004, "REQUEST_NOT_SUPPORTED", "The server does not know the request code.", "Use a newer server or another client."),
    (5005, "REFUSED_BY_SERVER", "The server refused the request.", "See the server's words in the message."),
    (5010, "REQUEST_MALFORMED", "The bytes of the request are no message of its method.", "Use a client library for RocketMQ 5, or check how the request is encoded."),
    (5011, "REQUEST_TOO_LARGE", "The request has too many bytes or fields beside the bodies of its messages.", "Split it into several requests."),
    (5012, "REQUEST_TOO_SLOW", "The request did not arrive whole in time.", "Send it again, over a faster connection or in smaller parts."),
    (5013, "HEADERS_TOO_LARGE", "The headers of the request are over the limit.", "Send fewer or shorter headers."),
    (5014, "ILLEGAL_ACCESS_POINT", "The access point that the client names is no list of addresses.", "Name the server as host:port."),
    (6001, "JAVA_MISSING", "No Java runtime of version 17 or newer was found.", 'Install one (Debian: apt install openjdk-17-jre-headless) or pip install "millstream[streams-java]".'),
    (6002, "SPARK_START_FAILED", "The Spark session did not start.", "See the cause in the message; memory and Java are the usual ones."),
    (6003, "JOB_FAILED", "A stream job ended with an error.", "See the cause in the message; its checkpoint is kept."),
    (6004, "CHECKPOINT_MISMATCH", "The checkpoint belongs to another query.", "Use another checkpoint directory, or the old query."),
    (6005, "SINK_FAILED", "A sink could not take the rows.", "See the cause in the message."),
    (6006, "CHECKPOINT_DAMAGED", "A file of a job's state cannot be read.", "Restore the checkpoint directory from a copy, or begin with another one."),
    (7001, "SQL_SYNTAX", "The statement cannot be read.", "Correct the SQL at the position shown."),
    (7002, "SQL_UNSUPPORTED", "The statement is legal Flink SQL that is not supported here.", "See docs/sql.md for what is supported."),
    (7003, "SQL_UNKNOWN_TABLE", "No table or view of that name.", "Create it first, or correct the name."),
    (7004, "SQL_UNKNOWN_COLUMN", "No column of that name is visible there.", "Correct the name."),
    (7005, "SQL_UNKNOWN_FUNCTION", "No function of that name and number of arguments.", "See docs/sql.md for the functions."),
    (7006, "SQL_TYPE", "The types do not fit.", "Add a CAST or correct the expression."),
    (7007, "SQL_OPTION", "A table option is unknown, missing or has an illegal value.", "Correct the WITH clause."),
    (7008, "SQL_TABLE_EXISTS", "A table or view of that name exists.", "Drop it first or use IF NOT EXISTS."),
    (7009, "SQL_TIME_ATTRIBUTE", "A window needs a column that has a watermark.", "Declare WATERMARK FOR the column in CREATE TABLE."),
    (7010, "SQL_SCRIPT", "The script cannot be read or has nothing to run.", "Name a readable file with at least one statement."),
    (7011, "SQL_VARIABLE", "A variable of the script has no value.", "Give it with SET 'var.name' = '...' or in the environment."),
    (7012, "SQL_UNKNOWN_NAME", "No catalog, database, function or job of that name.", "Create it first, or correct the name."),
    (8001, "TRACE_NOT_FOUND", "No trace tells of the message.", "Start the server with quickstart --trace, and look again a second after the message was sent."),
    (9001, "RULE_STORE_NOT_FOUND", "The directory is no store of rules.", "Name another one, or put rules into it: millstream rules import PATH --store DIR."),
    (9002, "RULE_STORE_DAMAGED", "A file of a rule store fails its checksum or cannot be read.", "Go back to a version that is whole: millstream rules versions and millstream rules rollback VERSION."),
    (9003, "RULE_STORE_IN_USE", "Another process changes the rule store.", "Try again when that process has ended."),
    (9004, "RULE_STORE_NOT_WRITABLE", "The rule store cannot be written; the rules stay as they were.", "Mend the directory's permissions or make room on its disk."),
    (9005, "RULE_STORE_FULL", "A rule store cannot hold so many rules.", "Keep some of them in another store."),
    (9006, "RULE_VERSION_NOT_FOUND", "The rule store has no version of that number.", "See which there are: millstream rules versions."),
    (9007, "RULE_NOT_FOUND", "No rule of the store has that id or fits that pattern.", "See which there are: millstream rules list."),
    (9008, "RULE_FILE", "Rules cannot be read from a file or directory.", "Name readable files of rules: .yml, .yaml or .sql."),
    (9009, "RULE_REFUSED", "A rule cannot be taken; the others are.", "Correct the rule at the place shown, and import it again."),
    (9010, "RULE_EVENT", "An event that rules are to be tested on cannot be read.", "Give events as JSON objects, one a line."),
)  # fmt: skip


def find_entry(number: int) -> ErrorEntry | None:
    """The row of that number, or None."""
    return next((entry for entry in CATALOGUE.values() if entry.number == number), None)
