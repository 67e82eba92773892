// Obeys the lines of ../README.md with ali-ons, a client of the remoting protocol in JavaScript.
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(import.meta.url);
const { Consumer, Message, Producer } = require('ali-ons');

const say = (...words) => console.error(...words);
const quiet = { debug() {}, info() {}, warn: say, error: say };
const clients = new Map();
let instances = 0;

const write = value => process.stdout.write(JSON.stringify(value) + '\n');

function shown(message) {
  return {
    id: message.msgId,
    topic: message.topic,
    body: message.body.toString('utf8'),
    tag: message.tags ?? null,
    keys: message.keys ? message.keys.split(' ') : [],
    properties: message.properties,
    attempt: message.reconsumeTimes + 1,
    queue: message.queueId,
    queue_offset: Number(message.queueOffset),
  };
}

function common(order) {
  return {
    httpclient: { request() {} },
    nameSrv: order.endpoint,
    logger: quiet,
    clientIP: '127.0.0.1',
    instanceName: `i${process.pid}-${++instances}`,
    accessKeyId: order.access_key ?? 'none',
    accessKeySecret: order.secret_key ?? 'none',
    namespace: order.namespace ?? '',
    pollNameServerInteval: 1000,
    heartbeatBrokerInterval: 1000,
    persistConsumerOffsetInterval: 500,
    rebalanceInterval: 1000,
  };
}

function outgoing(wanted) {
  const message = new Message(wanted.topic, wanted.tag ?? '', Buffer.from(wanted.body, 'utf8'));
  if (wanted.keys) message.keys = wanted.keys;
  Object.assign(message.properties, wanted.properties ?? {});
  if (wanted.level) message.delayTimeLevel = wanted.level;
  return message;
}

async function opened(order, client) {
  client.on('error', error => say('error', error));
  await client.ready();
  clients.set(order.client, client);
  return {};
}

const ops = {
  async open_producer(order) {
    return opened(order, new Producer({ ...common(order), producerGroup: order.group ?? `producers-${order.client}` }));
  },
  async open_push(order) {
    const consumer = new Consumer({
      ...common(order),
      consumerGroup: order.group,
      isBroadcast: order.model === 'broadcast',
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
      maxReconsumeTimes: (order.attempts ?? 17) - 1,
    });
    const filter = order.sql ? { expressionType: 'SQL92', subString: order.sql } : order.filter ?? '*';
    consumer.subscribe(order.topic, filter, async message => {
      const failing = (order.fail ?? {})[message.body.toString('utf8')] ?? 0;
      write({ event: 'message', client: order.client, message: shown(message) });
      // Not ACTION_RETRY, which the client forgets for a message that has come again.
      if (message.reconsumeTimes < failing) throw new Error('as the scenario wants it');
    });
    return opened(order, consumer);
  },
  async send(order) {
    const sent = await clients.get(order.client).send(outgoing(order.message));
    return { id: sent.msgId, status: sent.sendStatus, queue_offset: Number(sent.queueOffset) };
  },
  async close(order) {
    const client = clients.get(order.client);
    clients.delete(order.client);
    await client.close();
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
process.on('unhandledRejection', error => say('unhandled', error));
// A consumer that is refused throws where nobody can catch it.
process.on('uncaughtException', error => say('uncaught', error));
