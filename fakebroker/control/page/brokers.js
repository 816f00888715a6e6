// The coordinator map: the brokers with their load and the partitions of __consumer_offsets that they lead. Stops and
// starts brokers and moves coordinators.

import { get, post } from "./api.js";
import { count, div, find, h, joinNames, number, option, rate, row, setText, updateList } from "./dom.js";
import { button, on, overview, throttled } from "./live.js";

const SHOWN_APIS = 8;
const LONG_NAME = 18;
const LOAD_INTERVAL_MS = 3000;
const SHOWN_LEADERLESS = 12;

/** The states of transactions that have not ended. */
const OPEN = ["Ongoing", "PrepareCommit", "PrepareAbort"];

let partitions = [];
let selected = null;
let rebalancingGroupIds = [];
let rebalancing = new Set();

export function start() {
  let leaders = "";
  let loaded_ms = -Infinity;
  const load = throttled(async () => {
    loaded_ms = performance.now();
    partitions = (await get("/coordinators")).offsets_partitions;
    render();
  }, 250);
  on("overview", (detail) => {
    renderOverview(detail);
    const newLeaders = JSON.stringify(detail.brokers.map(({ up, offsets_partitions }) => [up, offsets_partitions]));
    const isLoading = partitions.some((partition) => partition.is_loading);
    // The server counts the groups of each partition for this request; the counts change slowly.
    if (newLeaders !== leaders || isLoading || performance.now() - loaded_ms > LOAD_INTERVAL_MS) load();
    leaders = newLeaders;
  });
  on("opened", load);
  find("#brokers").addEventListener("keydown", moveFocus);
  find("#loading").append(button("Finish loading", () => post("/brokers/finish_loading")));
}

/** Return a group's partition of __consumer_offsets: Kafka's `Utils.abs(groupId.hashCode) % partitions`. */
function partitionOf(groupId) {
  let hash = 0;
  for (let at = 0; at < groupId.length; at++) hash = (Math.imul(hash, 31) + groupId.charCodeAt(at)) | 0;
  return (hash === -0x80000000 ? 0 : Math.abs(hash)) % partitions.length;
}

/** Highlight the offsets partitions of groups that are rebalancing. */
export function markRebalancing(groupIds) {
  rebalancingGroupIds = groupIds;
  render();
}

/** Return the failover options from the field below the map. */
function failoverOptions() {
  const text = find("#load-ms").value;
  return text === "" ? {} : { load_ms: Number(text) };
}

/** Return the options of a move to a node id. "none" leaves no leader, so that there is no coordinator that loads. */
export const destination = (to) => (to === "none" ? { to: null } : { to: Number(to), ...failoverOptions() });

/** Move the leader of a partition of __consumer_offsets, and with it the coordinator of its groups. */
const moveLeader = (partition, to) =>
  post(`/topics/__consumer_offsets/partitions/${partition}/move_leader`, destination(to));

/** Return an option for each running broker except the current leader, and "none". */
export function targetOptions(leader) {
  const others = (overview?.brokers ?? []).filter(({ up, node_id }) => up && node_id !== leader);
  return [...others.map(({ node_id }) => option(node_id, `broker ${node_id}`)), option("none", "no broker")];
}

// Overview

function renderOverview(detail) {
  const { bootstrap_servers, brokers, groups_by_state, members, transactions_by_state, faults, rates, journal } = detail;
  setText(find("#bootstrap"), bootstrap_servers);
  const groups = Object.values(groups_by_state).reduce((sum, each) => sum + each, 0);
  setText(find("#totals"), `${count(groups, "group")}, ${count(members, "member")}`);
  const open = OPEN.reduce((sum, state) => sum + (transactions_by_state[state] ?? 0), 0);
  setText(find("#transaction-count"), open ? `${number(open)} open` : "");
  setText(find("#fault-count"), faults ? number(faults) : "");
  const { broker_p99_ms, wire_p99_ms } = rates.latency;
  const p99 = `p99 broker ${milliseconds(broker_p99_ms)} ms, wire ${milliseconds(wire_p99_ms)} ms`;
  const facts = [`${rate(rates.requests_per_s)}/s`, wire_p99_ms !== null && p99, `${number(journal.size)} in journal`];
  setText(find("#rate"), facts.filter(Boolean).join(", "));
  const busiest = Math.max(1, ...brokers.map((broker) => broker.requests_per_s));
  const update = (card, broker) => updateBroker(card, broker, busiest);
  updateList(find("#brokers"), brokers, ({ node_id }) => node_id, makeBroker, update);
  const apis = [...rates.by_api].sort((one, other) => other.requests_per_s - one.requests_per_s);
  const prompt = apis.filter(({ can_wait }) => !can_wait).slice(0, SHOWN_APIS);
  updateList(find("#prompt-apis"), prompt, ({ api }) => api, makeRate, updateRate);
  updateList(find("#waiting-apis"), apis.filter(({ can_wait }) => can_wait), ({ api }) => api, makeRate, updateRate);
}

function makeRate({ api, can_wait }) {
  const name = h("a", { href: `#requests?api=${api}` }, api.length > LONG_NAME ? breakable(api) : api);
  return row([name, can_wait && h("small", {}, "can wait")], "", "", "", "");
}

/** Allow line breaks before the words of a name. */
const breakable = (name) => name.split(/(?=[A-Z])/).flatMap((word) => [h("wbr"), word]);

function updateRate(line, { requests_per_s, errors_per_s, broker_p50_ms, broker_p99_ms, wire_p50_ms, wire_p99_ms }) {
  const broker = `${milliseconds(broker_p50_ms)}\n${milliseconds(broker_p99_ms)}`;
  const wire = `${milliseconds(wire_p50_ms)}\n${milliseconds(wire_p99_ms)}`;
  const cells = [rate(requests_per_s), rate(errors_per_s), broker, wire];
  cells.forEach((text, at) => setText(line.children[at + 1], text));
  line.children[2].classList.toggle("bad", errors_per_s > 0);
}

const milliseconds = (ms) => (ms === null ? "" : ms < 10 ? ms.toFixed(2) : number(ms));

function makeBroker({ node_id }) {
  const path = `/brokers/${node_id}`;
  return h("li", { class: "broker", "aria-label": `Broker ${node_id}` },
    div("row", h("b", {}, `Broker ${node_id}`), h("span", { class: "where" }), h("span", { class: "up" }),
      button("Stop", () => post(`${path}/stop`, failoverOptions())),
      button("Start", () => post(`${path}/start`, failoverOptions()))),
    div("row", div("load", h("i")), h("small", { class: "speed" })),
    h("p", { class: "facts" }),
    h("div", { class: "partitions", role: "group", "aria-label": `Offsets partitions led by broker ${node_id}` }));
}

function updateBroker(card, broker, busiest) {
  const { up, port, as_version, connections, groups, members, requests_per_s } = broker;
  card.dataset.up = up;
  setText(find(".where", card), `:${port}, Kafka ${as_version}`);
  setText(find(".up", card), up ? "up" : "down");
  const [stop, start] = card.querySelectorAll(".row button");
  stop.hidden = !up;
  start.hidden = up;
  find(".load i", card).style.width = `${Math.round((100 * requests_per_s) / busiest)}%`;
  setText(find(".speed", card), `${rate(requests_per_s)} requests/s`);
  const facts = [count(groups, "group"), count(members, "member"), count(connections, "connection")].join(" · ");
  setText(find(".facts", card), up ? facts : "Refuses connections.");
}

// Partitions

function render() {
  if (!overview || !partitions.length) return;
  rebalancing = new Set(rebalancingGroupIds.map(partitionOf));
  const busiest = Math.max(1, ...partitions.map((partition) => partition.groups));
  const led = Map.groupBy(partitions, ({ leader }) => leader);
  const update = (square, partition) => updatePartition(square, partition, busiest);
  for (const card of find("#brokers").children) {
    const list = find(".partitions", card);
    updateList(list, led.get(Number(card.dataset.key)) ?? [], ({ partition }) => partition, makePartition, update);
    // Roving tabindex: Tab stops at one square of the list, arrow keys move to the others.
    const tabStops = [find('[aria-pressed="true"]', list) ?? list.firstElementChild, document.activeElement];
    for (const square of list.children) square.tabIndex = tabStops.includes(square) ? 0 : -1;
  }
  find("#loading").hidden = !partitions.some((partition) => partition.is_loading);
  renderSelected();
}

function makePartition({ partition }) {
  const select = () => {
    selected = selected === partition ? null : partition;
    render();
  };
  return h("button", { type: "button", onclick: select });
}

function updatePartition(square, { partition, groups, members, is_loading }, busiest) {
  square.dataset.heat = groups ? Math.ceil((4 * groups) / busiest) : 0;
  square.toggleAttribute("data-loading", is_loading);
  square.toggleAttribute("data-rebalancing", rebalancing.has(partition));
  square.setAttribute("aria-pressed", partition === selected);
  const notes = [is_loading && "loading", rebalancing.has(partition) && "rebalancing"].filter(Boolean);
  const label = [`Partition ${partition}: ${count(groups, "group")}, ${count(members, "member")}`, ...notes].join(", ");
  square.setAttribute("aria-label", label);
  square.title = label;
}

/** Show the selected partition, or the first one without a leader, and list all without a leader. */
function renderSelected() {
  const panel = find("#partition");
  const isLed = ({ leader }) => overview.brokers.some(({ node_id }) => node_id === leader);
  const leaderless = partitions.filter((each) => !isLed(each));
  const found = partitions.find(({ partition }) => partition === selected) ?? leaderless[0];
  panel.hidden = !found;
  // Unchanged content is kept, because the user may be choosing a broker from the list.
  const key = JSON.stringify([found, leaderless.length, overview.brokers.map(({ up }) => up)]);
  if (!found || panel.dataset.key === key) return;
  panel.dataset.key = key;
  const { partition, leader, groups, members, is_loading } = found;
  const to = h("select", { "aria-label": "Move it to" }, targetOptions(leader));
  const names = joinNames(leaderless.map((each) => each.partition), SHOWN_LEADERLESS);
  const leaderText = isLed(found) ? ` on broker ${leader}` : " without leader";
  const counts = `: ${count(groups, "group")}, ${count(members, "member")}${is_loading ? ", loading" : ""}`;
  panel.replaceChildren(
    h("p", { class: "bad", hidden: !leaderless.length },
      `${count(leaderless.length, "partition")} without leader: ${names}`),
    h("p", {}, h("b", {}, `__consumer_offsets-${partition}`), leaderText, counts),
    div("row", "to ", to, button("Move", () => moveLeader(partition, to.value))));
}

/** Move the focus from square to square with the arrow keys. */
function moveFocus(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.matches(".partitions button")) return;
  event.preventDefault();
  const all = [...event.currentTarget.querySelectorAll(".partitions button")];
  const next = all[(all.indexOf(event.target) + step + all.length) % all.length];
  next.tabIndex = 0;
  next.focus();
}
