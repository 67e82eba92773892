// Obeys the lines of ../README.md with the official Node.js client.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(import.meta.url);
const rocketmq = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const quiet = { debug() {}, info() {}, warn: (...words) => console.error(...words), error: (...words) => console.error(...words) };
const resolutions = {
  commit: TransactionResolution.COMMIT,
  rollback: TransactionResolution.ROLLBACK,
  unknown: TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
};
const clients = new Map();
const received = new Map();

const write = value => process.stdout.write(JSON.stringify(value) + '\n');

function shown(view) {
  return {
    id: view.messageId,
    topic: view.topic,
    body: view.body.toString('utf8'),
    tag: view.tag ?? null,
    keys: view.keys,
    group: view.messageGroup ?? null,
    properties: Object.fromEntries(view.properties),
    attempt: view.deliveryAttempt,
    deliver_at_ms: view.deliveryTimestamp?.getTime() ?? null,
    priority: view.priority ?? null,
    lite_topic: view.liteTopic ?? null,
  };
}

function common(order) {
  const credentials = order.access_key
    ? { accessKey: order.access_key, accessSecret: order.secret_key }
    : undefined;
  return {
    endpoints: order.endpoint,
    namespace: order.namespace ?? '',
    sessionCredentials: credentials,
    logger: quiet,
  };
}

function subscriptions(order) {
  const filter = order.sql
    ? new rocketmq.FilterExpression(order.sql, FilterType.SQL)
    : new rocketmq.FilterExpression(order.filter ?? '*', FilterType.TAG);
  return new Map([[order.topic, filter]]);
}

function listener(order) {
  return {
    async consume(view) {
      const failing = (order.fail ?? {})[view.body.toString('utf8')] ?? 0;
      write({ event: 'message', client: order.client, message: shown(view) });
      return view.deliveryAttempt <= failing ? rocketmq.ConsumeResult.FAILURE : rocketmq.ConsumeResult.SUCCESS;
    },
  };
}

function outgoing(message) {
  return {
    topic: message.topic,
    body: Buffer.from(message.body, 'utf8'),
    tag: message.tag ?? undefined,
    keys: message.keys ?? [],
    messageGroup: message.group ?? undefined,
    properties: message.properties ? new Map(Object.entries(message.properties)) : undefined,
    deliveryTimestamp: message.deliver_at_ms ? new Date(message.deliver_at_ms) : undefined,
    priority: message.priority ?? undefined,
    liteTopic: message.lite_topic ?? undefined,
  };
}

async function opened(order, client) {
  await client.startup();
  clients.set(order.client, client);
  return {};
}

const ops = {
  async open_producer(order) {
    const checker = {
      async check(view) {
        write({ event: 'check', client: order.client, message: shown(view) });
        return resolutions[order.check];
      },
    };
    return opened(order, new rocketmq.Producer({
      ...common(order), topics: order.topics, topic: order.topics, checker: order.check ? checker : undefined,
    }));
  },
  async open_push(order) {
    return opened(order, new rocketmq.PushConsumer({
      ...common(order), consumerGroup: order.group, subscriptions: subscriptions(order), messageListener: listener(order),
    }));
  },
  async open_lite_push(order) {
    const client = new rocketmq.LitePushConsumerImpl({
      ...common(order), consumerGroup: order.group, bindTopic: order.topic, messageListener: listener(order),
    });
    await opened(order, client);
    for (const name of order.lite_topics) await client.subscribeLite(name);
    return {};
  },
  async open_simple(order) {
    return opened(order, new rocketmq.SimpleConsumer({
      ...common(order), consumerGroup: order.group, subscriptions: subscriptions(order), awaitDuration: order.await_s * 1000,
    }));
  },
  async send(order) {
    const producer = clients.get(order.client);
    if (!order.transaction) {
      const receipt = await producer.send(outgoing(order.message));
      return { id: receipt.messageId, recall_handle: receipt.recallHandle || null };
    }
    const transaction = producer.beginTransaction();
    const receipt = await producer.send(outgoing(order.message), transaction);
    if (order.transaction === 'commit') await transaction.commit();
    if (order.transaction === 'rollback') await transaction.rollback();
    return { id: receipt.messageId, recall_handle: null };
  },
  async recall(order) {
    const receipt = await clients.get(order.client).recallMessage(order.topic, order.handle);
    return { id: receipt.messageId };
  },
  async receive(order) {
    const views = await clients.get(order.client).receive(order.max, order.invisible_s * 1000);
    for (const view of views) received.set(view.messageId, view);
    return { messages: views.map(shown) };
  },
  async ack(order) {
    await clients.get(order.client).ack(received.get(order.id_of_message));
    return {};
  },
  async change_invisible(order) {
    await clients.get(order.client).changeInvisibleDuration(received.get(order.id_of_message), order.invisible_s * 1000);
    return {};
  },
  async close(order) {
    const client = clients.get(order.client);
    clients.delete(order.client);
    await client.shutdown();
    return {};
  },
};

async function obey(order) {
  try {
    write({ id: order.id, result: await ops[order.op](order) });
  } catch (error) {
    write({ id: order.id, error: { code: error.code ?? null, text: String(error.stack ?? error) } });
  }
}

const lines = createInterface({ input: process.stdin });
lines.on('line', line => void obey(JSON.parse(line)));
lines.on('close', () => process.exit(0));
process.on('unhandledRejection', error => console.error('unhandled', error));
