// Subscribes, publishes one message with each QoS and prints what came: node exchange.mjs URL VERSION
import mqtt from "mqtt";

const [url, version] = process.argv.slice(2);
const protocolVersion = Number(version);
const client = await mqtt.connectAsync(url, { protocolVersion, reconnectPeriod: 0 });
const found = [];
const all = new Promise((resolve) => {
  client.on("message", (topic, payload, packet) => {
    found.push({ topic, payload: payload.toString(), qos: packet.qos, user: packet.properties?.userProperties ?? {} });
    if (found.length === 3) resolve();
  });
});
await client.subscribeAsync("js/#", { qos: 2 });
const properties = protocolVersion === 5 ? { userProperties: { a: "b" } } : undefined;
for (const qos of [0, 1, 2]) await client.publishAsync(`js/${qos}`, `m${qos}`, { qos, properties });
await all;
await client.endAsync();
console.log(JSON.stringify(found));
