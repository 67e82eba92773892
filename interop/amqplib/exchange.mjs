// Publishes three messages with confirms, consumes them, rejects one into a dead-letter queue, and prints what came.
import amqp from "amqplib";

const connection = await amqp.connect(process.argv[2]);
const channel = await connection.createConfirmChannel();
await channel.assertExchange("js", "topic", { durable: true });
await channel.assertQueue("js.dead");
await channel.assertQueue("js.q", { durable: true, deadLetterExchange: "", deadLetterRoutingKey: "js.dead" });
await channel.bindQueue("js.q", "js", "a.#");
await channel.prefetch(1);
for (const [key, text] of [["a", "m0"], ["a.b", "m1"], ["a.b.c", "m2"]]) {
  channel.publish("js", key, Buffer.from(text), { headers: { text }, messageId: text, persistent: true });
}
await channel.waitForConfirms();
const found = [];
const note = (message) => [message.fields.routingKey, message.content.toString(), message.properties.headers.text];
await new Promise((resolve, reject) => {
  channel.consume("js.q", (message) => {
    try {
      found.push(note(message));
      if (found.length === 2) channel.nack(message, false, false);
      else channel.ack(message);
      if (found.length === 3) resolve();
    } catch (error) { reject(error); }
  });
});
let dead = false;
for (let turn = 0; !dead && turn < 200; turn += 1) {
  dead = await channel.get("js.dead", { noAck: true });
  if (!dead) await new Promise((resolve) => setTimeout(resolve, 50));
}
found.push([dead.properties.headers["x-death"][0].reason, dead.content.toString(), dead.properties.messageId]);
await connection.close();
console.log(JSON.stringify(found));
