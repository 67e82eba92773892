// What pages do in a browser, and what they find: page.html?scenario=NAME&..., posted to /found of the page's own server.
const asked = Object.fromEntries(new URLSearchParams(location.search));
const EVENT = { "ce-specversion": "1.0", "ce-source": "/page", "ce-type": "seen", "content-type": "application/json" };

const order = (name) => fetch(`/do/${name}`, { method: "POST", body: "" });

function until(holds, what) {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    const look = () => {
      if (holds()) resolve();
      else if (performance.now() - began > 30_000) reject(new Error(`${what} did not come in 30 s`));
      else setTimeout(look, 20);
    };
    look();
  });
}

function post(id, data) {
  const headers = { ...EVENT, "ce-id": id };
  return fetch(`${asked.http}/v1/topics/${asked.topic}/messages`, { method: "POST", headers, body: JSON.stringify(data) });
}

// A client of mqtt.js that notes what it is told.
function watched(url, options) {
  const client = mqtt.connect(url, { reconnectPeriod: 200, ...options });
  const seen = { messages: [], sessions: [], lost: 0 };
  client.on("connect", (connack) => seen.sessions.push(connack.sessionPresent));
  client.on("close", () => (seen.lost += 1));
  client.on("message", (topic, payload, { qos, retain, dup, properties }) => {
    seen.messages.push({ topic, payload: payload.toString(), qos, retain, dup, user: { ...properties?.userProperties } });
  });
  return { client, seen, open: () => until(() => client.connected, `a connection to ${url}`) };
}

const scenarios = {
  // Publishes with each QoS to itself, and leaves a retained message to the next.
  async mqtt() {
    const protocolVersion = Number(asked.version);
    const properties = protocolVersion === 5 ? { userProperties: { a: "b" } } : undefined;
    const one = watched(asked.mqtt, { protocolVersion });
    await one.open();
    await one.client.subscribeAsync(`${asked.prefix}/#`, { qos: 2 });
    for (const qos of [0, 1, 2]) await one.client.publishAsync(`${asked.prefix}/${qos}`, `m${qos}`, { qos, properties });
    await until(() => one.seen.messages.length === 3, "each message");
    await one.client.publishAsync(`${asked.prefix}/kept`, "k".repeat(100_000), { qos: 1, retain: true });
    const next = watched(asked.mqtt, { protocolVersion });
    await next.open();
    await next.client.subscribeAsync(`${asked.prefix}/kept`, { qos: 1 });
    await until(() => next.seen.messages.length === 1, "the retained message");
    const [{ payload, retain }] = next.seen.messages;
    await Promise.all([one.client.endAsync(), next.client.endAsync()]);
    return { messages: one.seen.messages.slice(0, 3), kept: payload.length, retain };
  },

  // Loses its socket; others and itself publish meanwhile.
  async session() {
    const properties = { sessionExpiryInterval: 600 };
    const options = { protocolVersion: 5, clean: false, clientId: "page", properties };
    const here = watched(asked.mqtt, options);
    await here.open();
    await here.client.subscribeAsync("lost/#", { qos: 2 });
    const other = watched(asked.direct, { protocolVersion: 5 });
    await other.open();
    await order("cut");
    await until(() => here.seen.lost > 0, "the loss of the socket");
    for (let number = 0; number < 50; number++) {
      await other.client.publishAsync("lost/other", `o${number}`, { qos: 1 + (number % 2) });
    }
    const own = Promise.all([1, 2].map((qos) => here.client.publishAsync("lost/own", `p${qos}`, { qos })));
    await order("mend");
    await own;
    await until(() => here.seen.messages.length >= 52, "what was sent meanwhile");
    await new Promise((resolve) => setTimeout(resolve, 500));
    await Promise.all([here.client.endAsync(), other.client.endAsync()]);
    return { sessions: here.seen.sessions, messages: here.seen.messages.map(({ payload }) => payload) };
  },

  // Follows a topic by EventSource while connections are cut, and while the server stops and starts.
  async events() {
    const seen = { ids: [], opened: 0, lost: [] };
    const source = new EventSource(`${asked.http}/v1/topics/${asked.topic}/stream`);
    source.onopen = () => (seen.opened += 1);
    source.onerror = () => seen.lost.push(source.readyState);
    source.onmessage = ({ data }) => seen.ids.push(JSON.parse(data).id);
    await until(() => seen.opened === 1, "the stream");
    let number = 0;
    const some = async () => {
      for (const last = number + 10; number < last; number++) {
        const answer = await fetch(`/do/post-${number}`, { method: "POST", body: "" });
        if (!answer.ok) throw new Error(`event ${number} was not sent`);
      }
    };
    await some();
    await until(() => seen.ids.length >= number, "the first events");
    for (const [away, back] of [["cut", "mend"], ["stop", "start"]]) {
      const before = seen.opened;
      await order(away);
      if (away === "cut") await some();
      await until(() => seen.lost.length && source.readyState === EventSource.CONNECTING, "the loss of the stream");
      await order(back);
      if (away === "stop") await some();
      await until(() => seen.opened > before, "the next stream");
      await some();
      await until(() => seen.ids.length >= number, "what was sent meanwhile");
    }
    source.close();
    return { ...seen, sent: number };
  },

  // Sends events, receives them over a WebSocket and acknowledges them, reads a refusal and recalls what is not there.
  async http() {
    const statuses = [];
    const socket = new WebSocket(`${asked.http.replace("http", "ws")}/v1/groups/${asked.group}/topics/${asked.topic}/websocket`);
    const seen = { ids: [], settled: 0 };
    socket.onmessage = ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.action) return void (seen.settled += frame.results.filter((one) => !one.error).length);
      for (const message of frame.messages) seen.ids.push(message.event.id);
      socket.send(JSON.stringify({ action: "ack", handles: frame.messages.map((message) => message.handle) }));
    };
    await until(() => socket.readyState === WebSocket.OPEN, "the WebSocket");
    for (let number = 0; number < 5; number++) {
      const answer = await post(`e${number}`, { number });
      statuses.push([answer.status, (await answer.json()).messages.length]);
    }
    await until(() => seen.settled === 5, "each event and its acknowledgement");
    socket.close();
    const refused = await fetch(`${asked.http}/v1/topics/none/messages`, { method: "POST", body: "x" });
    const recalled = await fetch(`${asked.http}/v1/topics/${asked.topic}/messages/none`, { method: "DELETE" });
    const codes = [(await refused.json()).code, (await recalled.json()).code];
    return { statuses, ids: seen.ids.sort(), settled: seen.settled, refused: refused.status, recalled: recalled.status, codes };
  },

  // Tries all that a page of a foreign origin may try.
  async refused() {
    const place = `${asked.http}/v1/topics/${asked.topic}`;
    const fails = (work) => work.then(() => "", (error) => error.name);
    const closes = (url, protocol) => new Promise((resolve) => {
      const socket = new WebSocket(url, protocol);
      socket.onopen = () => resolve("open");
      socket.onclose = ({ code }) => resolve(code);
    });
    const plain = await fails(fetch(`${place}/messages`, { method: "POST", body: "plain" }));
    const event = await fails(post("foreign", 1));
    const blind = await fetch(`${place}/messages`, { method: "POST", body: "blind", mode: "no-cors" });
    const source = new EventSource(`${place}/stream`);
    const stream = await new Promise((resolve) => {
      source.onopen = () => resolve("open");
      source.onerror = () => resolve(source.readyState);
    });
    const socket = await closes(`${asked.http.replace("http", "ws")}/v1/groups/g/topics/${asked.topic}/websocket`, []);
    return { plain, event, blind: blind.type, stream, socket, mqtt: await closes(asked.mqtt, "mqtt") };
  },
};

const found = await scenarios[asked.scenario]().catch((error) => ({ failed: `${error.stack ?? error}` }));
await fetch("/found", { method: "POST", body: JSON.stringify(found) });
