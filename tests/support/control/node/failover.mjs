// Runs a kafkajs consumer through faults and failovers that it triggers over HTTP: failing joins and fetches, a moved
// coordinator, a stopped broker. Prints the records it read, the hits of the faults and the coordinators as JSON.

import { Kafka, logLevel } from "kafkajs";

const GROUP = "billing";
const CLUSTER = `${process.env.CONTROL}/v1/clusters/default`;

async function control(method, path, body) {
  const headers = { "content-type": "application/json" };
  const response = await fetch(CLUSTER + path, { method, headers, body: body && JSON.stringify(body) });
  const data = response.status === 204 ? null : await response.json();
  if (!response.ok) throw new Error(`${method} ${path}: ${data.detail}`);
  return data;
}

const wait = (condition) => control("POST", "/wait", { condition, timeout_s: 30 });

const { bootstrap_servers } = await control("GET", "");
const kafka = new Kafka({
  brokers: bootstrap_servers.split(","),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 50, maxRetryTime: 200 },
});
const producer = kafka.producer();
const consumer = kafka.consumer({ groupId: GROUP, sessionTimeout: 3000, heartbeatInterval: 100, maxWaitTimeInMs: 100 });
const read = new Set();

/** Produce ten records and wait until the consumer has committed them. */
let sent = 0;
async function produceAndConsume() {
  const messages = Array.from({ length: 10 }, () => ({ partition: 0, value: `record ${sent++}` }));
  await producer.send({ topic: "orders", messages });
  await wait({ is: "group.committed", group_id: GROUP, partition: "orders-0", at_least: sent });
}

const faults = [
  { api: "JoinGroup", group: GROUP, error: "COORDINATOR_NOT_AVAILABLE", times: 2 },
  { api: "Fetch", partition: "orders-0", error: "NOT_LEADER_OR_FOLLOWER", times: 2 },
  { api: "Heartbeat", group: GROUP, drop: true, times: 1 },
];
const ids = [];
for (const fault of faults) ids.push((await control("POST", "/inject_fault", fault)).id);
await producer.connect();
await consumer.connect();
await consumer.subscribe({ topics: ["orders"], fromBeginning: true });
await consumer.run({ eachMessage: async ({ message }) => read.add(message.value.toString()) });
await produceAndConsume();
await wait({ is: "requested", api: "Heartbeat" });
const hits = [];
for (const id of ids) hits.push((await control("GET", `/faults/${id}/describe`)).hits);

const { coordinator: first } = await control("GET", `/groups/${GROUP}`);
await control("POST", `/groups/${GROUP}/move_coordinator`, { to: (first % 3) + 1, load_ms: null });
await wait({ is: "requested", error: "COORDINATOR_LOAD_IN_PROGRESS" });
await control("POST", "/brokers/finish_loading");
await produceAndConsume();

const { coordinator: second } = await control("GET", `/groups/${GROUP}`);
await control("POST", `/brokers/${second}/stop`, {});
await produceAndConsume();
const { coordinator: third } = await control("GET", `/groups/${GROUP}`);
await control("POST", `/brokers/${second}/start`, {});
await produceAndConsume();

await consumer.disconnect();
await producer.disconnect();
await wait({ is: "group.state", group_id: GROUP, state: "Empty" });
console.log(JSON.stringify({ read: [...read], hits, coordinators: [first, second, third] }));
