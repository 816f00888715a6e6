// Runs an application of kafkajs that consumes, transforms and produces in transactions: one JSON command per line of
// stdin, one JSON answer per line of stdout. See tests/support/exactly_once/kafkajs.py.

import { createInterface } from "node:readline";
import { Kafka, logLevel } from "kafkajs";

const { servers, client_id, retry_ms, fetch_wait_ms, input, output, group_id, transactional_id } = JSON.parse(
  process.env.SETTINGS,
);
const retry = { initialRetryTime: retry_ms, maxRetryTime: 4 * retry_ms, factor: 0, retries: 200 };
const kafka = new Kafka({ brokers: servers.split(","), clientId: client_id, logLevel: logLevel.NOTHING, retry });
const producer = kafka.producer({ transactionalId: transactional_id, maxInFlightRequests: 1, retry });
const admin = kafka.admin({ retry });
// kafkajs assigns partitions in groups only: the group of this consumer has no other member, and commits nothing.
const consumer = kafka.consumer({ groupId: client_id, maxWaitTimeInMs: fetch_wait_ms, heartbeatInterval: 100, retry });
const values = [];
let received = () => {};
let transaction;

const methods = {
  async start() {
    await Promise.all([producer.connect(), admin.connect(), consumer.connect()]);
    await consumer.subscribe({ topics: [input], fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ message }) => {
        values[Number(message.offset)] = message.value.toString("hex");
        received();
      },
    });
    // The only method that initializes the producer; it also begins a transaction.
    transaction = await producer.transaction();
  },

  async committed() {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: group_id, topics: [input] });
    return Number(partitions[0].offset);
  },

  async read({ offset, count }) {
    while (values.length < offset + count) await new Promise((resolve) => (received = resolve));
    return values.slice(offset, offset + count);
  },

  async begin() {
    if (!transaction.isActive()) transaction = await producer.transaction();
  },

  async produce({ partition, values }) {
    // One partition per call: if the request to one of several leaders fails, kafkajs repeats the requests to the others
    // while they are in flight, with new sequence numbers. Their records would be doubled.
    const messages = values.map((value) => ({ partition, value: Buffer.from(value, "hex") }));
    await transaction.send({ topic: output, messages });
  },

  async send_offset({ offset }) {
    const partitions = [{ partition: 0, offset: String(offset) }];
    await transaction.sendOffsets({ consumerGroupId: group_id, topics: [{ topic: input, partitions }] });
  },

  commit: () => transaction.commit(),
  abort: () => transaction.abort(),
  can_abort: async () => transaction.isActive(),
};

/** Fail after a time, as the methods of other clients do. */
function within(seconds, promise) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("timeout")), seconds * 1000).unref());
  return Promise.race([promise, late]);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { method, timeout_s, ...parameters } = JSON.parse(line);
  let answer;
  try {
    answer = { value: (await within(timeout_s, methods[method](parameters))) ?? null };
  } catch (error) {
    answer = { error: `${error.name}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit();
