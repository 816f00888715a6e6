// The coordinator map: brokers, the partitions of __consumer_offsets that each leads, how many groups are on them and
// how busy they are; stopping and starting brokers, and moving coordinators.

import { get, post } from "./api.js";
import { count, div, find, h, keyed, listed, number, option, rate, row, write } from "./dom.js";
import { button, calmly, on, overview } from "./live.js";

const SHOWN_APIS = 8;
const COUNT_MS = 3000;
const SHOWN_LOST = 12;

let partitions = [];
let selected = null;
let groupIds = [];
let rebalancing = new Set();

export function start() {
  let leaders = "";
  let loaded_ms = -Infinity;
  const load = calmly(async () => {
    loaded_ms = performance.now();
    partitions = (await get("/coordinators")).offsets_partitions;
    render();
  }, 250);
  on("overview", (seen) => {
    renderOverview(seen);
    const now = JSON.stringify(seen.brokers.map(({ up, offsets_partitions }) => [up, offsets_partitions]));
    const isLoading = partitions.some((partition) => partition.is_loading);
    // How many groups are where changes slowly, and to count ten thousand takes the brokers' time.
    if (now !== leaders || isLoading || performance.now() - loaded_ms > COUNT_MS) load();
    leaders = now;
  });
  on("opened", load);
  find("#brokers").addEventListener("keydown", walk);
  find("#loading").append(button("Finish loading", () => post("/coordinators/finish_loading")));
}

/** The partition of __consumer_offsets that a group is on: Kafka's `Utils.abs(groupId.hashCode) % partitions`. */
function partitionOf(groupId) {
  let hash = 0;
  for (let at = 0; at < groupId.length; at++) hash = (Math.imul(hash, 31) + groupId.charCodeAt(at)) | 0;
  return (hash === -0x80000000 ? 0 : Math.abs(hash)) % partitions.length;
}

/** Mark where these groups are: they are rebalancing. */
export function mark(ids) {
  groupIds = ids;
  render();
}

/** How coordinators are to come up elsewhere, as the field beside the map says. */
function failover() {
  const text = find("#load-ms").value;
  return text === "" ? {} : { load_ms: Number(text) };
}

/** Let a coordinator move; `what` is a group or a partition; `to` is a node id, or "nobody". */
export const move = (what, to) =>
  post("/coordinators/move", { ...what, to: to === "nobody" ? null : Number(to), ...failover() });

/** Where something can be moved to that is at `leader`. */
export function places(leader) {
  const others = (overview?.brokers ?? []).filter(({ up, node_id }) => up && node_id !== leader);
  return [...others.map(({ node_id }) => option(node_id, `broker ${node_id}`)), option("nobody")];
}

// Overview

function renderOverview({ bootstrap_servers, brokers, groups_by_state, members, faults, rates, journal }) {
  write(find("#bootstrap"), bootstrap_servers);
  const groups = Object.values(groups_by_state).reduce((sum, each) => sum + each, 0);
  write(find("#totals"), `${count(groups, "group")}, ${count(members, "member")}`);
  write(find("#fault-count"), faults ? number(faults) : "");
  write(find("#rate"), `${rate(rates.requests_per_s)}/s, ${number(journal.size)} in the journal`);
  const busiest = Math.max(1, ...brokers.map((broker) => broker.requests_per_s));
  const update = (card, broker) => updateBroker(card, broker, busiest);
  keyed(find("#brokers"), brokers, ({ node_id }) => node_id, makeBroker, update);
  const apis = [...rates.by_api].sort((one, other) => other.requests_per_s - one.requests_per_s).slice(0, SHOWN_APIS);
  keyed(find("#rates tbody"), apis, ({ api }) => api, makeRate, updateRate);
}

function makeRate({ api }) {
  return row(h("a", { href: `#requests?api=${api}` }, api), "", "", "", "");
}

function updateRate(line, { requests_per_s, errors_per_s, p50_ms, p99_ms }) {
  const cells = [rate(requests_per_s), rate(errors_per_s), milliseconds(p50_ms), milliseconds(p99_ms)];
  cells.forEach((words, at) => write(line.children[at + 1], words));
  line.children[2].classList.toggle("bad", errors_per_s > 0);
}

const milliseconds = (ms) => (ms === null ? "" : ms < 10 ? ms.toFixed(2) : number(ms));

function makeBroker({ node_id }) {
  const path = `/brokers/${node_id}`;
  return h("li", { class: "broker", "aria-label": `Broker ${node_id}` },
    div("row", h("b", {}, `Broker ${node_id}`), h("span", { class: "where" }), h("span", { class: "up" }),
      button("Stop", () => post(`${path}/stop`, failover())), button("Start", () => post(`${path}/start`, failover()))),
    div("row", div("load", h("i")), h("small", { class: "speed" })),
    h("p", { class: "facts" }),
    h("div", { class: "partitions", role: "group", "aria-label": `Offsets partitions that broker ${node_id} leads` }));
}

function updateBroker(card, broker, busiest) {
  const { up, port, as_version, connections, groups, members, requests_per_s } = broker;
  card.dataset.up = up;
  write(find(".where", card), `:${port} as ${as_version}`);
  write(find(".up", card), up ? "up" : "down");
  const [stop, start] = card.querySelectorAll(".row button");
  stop.hidden = !up;
  start.hidden = up;
  find(".load i", card).style.width = `${Math.round((100 * requests_per_s) / busiest)}%`;
  write(find(".speed", card), `${rate(requests_per_s)} requests/s`);
  const facts = [count(groups, "group"), count(members, "member"), count(connections, "connection")].join(" · ");
  write(find(".facts", card), up ? facts : "Its port refuses.");
}

// Partitions

function render() {
  if (!overview || !partitions.length) return;
  rebalancing = new Set(groupIds.map(partitionOf));
  const busiest = Math.max(1, ...partitions.map((partition) => partition.groups));
  const led = Map.groupBy(partitions, ({ leader }) => leader);
  const update = (square, partition) => updatePartition(square, partition, busiest);
  for (const card of find("#brokers").children) {
    const list = find(".partitions", card);
    keyed(list, led.get(Number(card.dataset.key)) ?? [], ({ partition }) => partition, makePartition, update);
    // One of them is in the order of Tab; arrow keys go to the others.
    const entries = [find('[aria-pressed="true"]', list) ?? list.firstElementChild, document.activeElement];
    for (const square of list.children) square.tabIndex = entries.includes(square) ? 0 : -1;
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
  const notes = [is_loading && "loading", rebalancing.has(partition) && "a group on it is rebalancing"].filter(Boolean);
  const label = [`Partition ${partition}: ${count(groups, "group")}, ${count(members, "member")}`, ...notes].join(", ");
  square.setAttribute("aria-label", label);
  square.title = label;
}

/** The selected partition, and those that nobody leads. */
function renderSelected() {
  const panel = find("#partition");
  const isLed = ({ leader }) => overview.brokers.some(({ node_id }) => node_id === leader);
  const lost = partitions.filter((each) => !isLed(each));
  const found = partitions.find(({ partition }) => partition === selected) ?? lost[0];
  panel.hidden = !found;
  // Anew only if something is new: a person may be choosing.
  const key = JSON.stringify([found, lost.length, overview.brokers.map(({ up }) => up)]);
  if (!found || panel.dataset.key === key) return;
  panel.dataset.key = key;
  const { partition, leader, groups, members, is_loading } = found;
  const to = h("select", { "aria-label": "Move it to" }, places(leader));
  const names = listed(lost.map((each) => each.partition), SHOWN_LOST);
  const place = isLed(found) ? ` at broker ${leader}` : " at nobody";
  const state = `: ${count(groups, "group")}, ${count(members, "member")}${is_loading ? ", loading" : ""}`;
  panel.replaceChildren(
    h("p", { class: "bad", hidden: !lost.length }, `Nobody leads ${count(lost.length, "partition")}: ${names}.`),
    h("p", {}, h("b", {}, `__consumer_offsets-${partition}`), place, state),
    div("row", "to ", to, button("Move", () => move({ partition }, to.value))));
}

/** Arrow keys go from square to square. */
function walk(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!step || !event.target.matches(".partitions button")) return;
  event.preventDefault();
  const all = [...event.currentTarget.querySelectorAll(".partitions button")];
  const next = all[(all.indexOf(event.target) + step + all.length) % all.length];
  next.tabIndex = 0;
  next.focus();
}
