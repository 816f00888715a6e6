// The view of requests with their decoded bodies. Without filters they come from the event stream, which is sampled
// under load; with filters they are read from the journal, which has all of them.

import { get, queryOf } from "./api.js";
import { count, div, duration, find, h, option, rate, row, setText, table, timeOfDay, updateList } from "./dom.js";
import { nowMs, on, overview, throttled } from "./live.js";
import { displayId, linkTo } from "./rebalancing.js";

const MAX_ROWS = 200;
const INTERVAL_MS = 500;
const MAX_REFRESHED = 50;
const SHOWN_GROUPS = 3;
const FILTERS = {
  api: "API", group: "Group", transactional_id: "Transactional id", client_id: "Client id", error: "Error",
};
const COLUMNS = ["Time", "API", "Broker", "Client", "Groups", "Response", "Latency"];

export const open = (root, query, signal) => new Requests(root, query, signal);

class Requests {
  #fields;
  #note = h("p", { class: "note", role: "status" });
  #pause = h("button", { type: "button", id: "pause", "aria-pressed": "false" }, "Pause");
  #table = table(COLUMNS);
  #detail = h("section", { class: "detail", "aria-label": "Request", hidden: true });
  #requests = [];
  #last = null;
  #isPaused = false;
  #poll;
  #refresh;

  constructor(root, query, signal) {
    const field = ([name, label]) => [name, filterField(name, label, query.get(name) ?? "")];
    this.#fields = Object.fromEntries(Object.entries(FILTERS).map(field));
    const bar = { class: "bar", onsubmit: (event) => event.preventDefault() };
    root.append(
      h("form", bar, Object.values(this.#fields), this.#pause),
      h("datalist", { id: "apis" }, (overview?.rates.by_api ?? []).map(({ api }) => option(api))),
      this.#note,
      div("columns requests", this.#table, this.#detail),
    );
    this.#poll = throttled(() => this.#readJournal(signal), INTERVAL_MS, signal);
    this.#refresh = throttled(() => this.#refreshPending(), INTERVAL_MS, signal);
    for (const each of Object.values(this.#fields)) each.addEventListener("change", () => this.#restart());
    this.#pause.addEventListener("click", () => this.#togglePause());
    on("requests", (event) => this.#addFromStream(event), signal);
    on("overview", () => this.#tick(), signal);
    on("opened", () => this.#isPaused || this.#restart(), signal);
    this.#restart();
  }

  get #filters() {
    const given = Object.entries(this.#fields).map(([name, { value }]) => [name, value.trim()]);
    return Object.fromEntries(given.filter(([, value]) => value));
  }

  get #isFiltered() {
    return Object.keys(this.#filters).length > 0;
  }

  /** Clear the table and read with the filters as they are now. */
  #restart() {
    history.replaceState(null, "", `#requests${queryOf(this.#filters)}`);
    this.#requests = [];
    this.#last = null;
    this.#add([]);
    setText(this.#note, "");
    if (!this.#isPaused) this.#poll();
  }

  #togglePause() {
    this.#isPaused = !this.#isPaused;
    this.#pause.setAttribute("aria-pressed", this.#isPaused);
    setText(this.#pause, this.#isPaused ? "Resume" : "Pause");
  }

  /** Add or update rows; the newest MAX_ROWS stay. */
  #add(more) {
    const bySeq = new Map([...this.#requests, ...more].map((request) => [request.seq, request]));
    this.#requests = [...bySeq.values()].sort((one, other) => other.seq - one.seq).slice(0, MAX_ROWS);
    const make = (request) => makeRow(request, () => this.#show(request));
    updateList(this.#table.body, this.#requests, ({ seq }) => seq, make, updateRow);
  }

  #addFromStream({ sampled, seen, requests }) {
    if (this.#isPaused || this.#isFiltered) return;
    this.#add(requests);
    const sample = `Sampled: ${requests.length} of the last ${count(seen, "request")}`;
    const text = `${sample}, at ${rate(overview?.rates.requests_per_s)}/s. Set a filter to see all matching requests.`;
    setText(this.#note, sampled ? text : "All requests, newest first.");
  }

  #tick() {
    if (this.#isPaused) return;
    if (this.#isFiltered) this.#poll();
    this.#refresh();
  }

  async #readJournal(signal) {
    const filters = this.#filters;
    const { requests, last } = await get("/journal", { ...filters, after: this.#last, limit: MAX_ROWS }, signal);
    if (this.#isPaused || JSON.stringify(filters) !== JSON.stringify(this.#filters)) return;
    this.#last = last;
    this.#add(requests);
    const all = `${count(this.#requests.length, "matching request")} in the journal (at most ${MAX_ROWS} are shown).`;
    const some = `The newest ${MAX_ROWS} matching requests. Older ones are not shown.`;
    setText(this.#note, requests.length < MAX_ROWS ? all : some);
  }

  /** Read requests again that had no response yet. */
  async #refreshPending() {
    const pending = this.#requests.filter(({ answered_ms }) => answered_ms === null).slice(0, MAX_REFRESHED);
    if (!pending.length) return;
    const found = await readRequests(pending.map(({ seq }) => seq));
    const visible = new Set(this.#requests.map(({ seq }) => seq));
    this.#add(found.filter(({ seq }) => visible.has(seq)));
  }

  async #show(request) {
    const key = String(request.seq);
    for (const line of this.#table.body.children) line.toggleAttribute("data-shown", line.dataset.key === key);
    this.#detail.hidden = false;
    this.#detail.replaceChildren(...details((await readRequests([request.seq]))[0] ?? request));
  }
}

const filterField = (name, label, value) =>
  h("input", {
    type: "search",
    placeholder: label,
    "aria-label": label,
    "data-first": name === "api",
    list: name === "api" && "apis",
    value,
  });

/** Read requests by number; those that the journal has dropped are missing. */
async function readRequests(seqs) {
  const { requests } = await get("/journal", { seqs: seqs.join(","), limit: seqs.length });
  return requests;
}

function makeRow({ received_ms, api, version, broker, client_id, group_ids }, show) {
  const name = h("button", { type: "button", class: "link", "data-row": true, onclick: show }, `${api} v${version}`);
  const groups = group_ids.slice(0, SHOWN_GROUPS).map((id) => [h("a", { href: linkTo(id) }, displayId(id)), " "]);
  if (group_ids.length > SHOWN_GROUPS) groups.push(`and ${group_ids.length - SHOWN_GROUPS} more`);
  const answer = [h("span", { class: "answer" }), h("span", { class: "latency" })];
  return row(timeOfDay(received_ms), name, broker, client_id ?? "", groups, ...answer);
}

function updateRow(line, { answered_ms, latency_ms, errors }) {
  const isPending = answered_ms === null;
  line.toggleAttribute("data-pending", isPending);
  line.toggleAttribute("data-failed", errors.length > 0);
  setText(find(".answer", line), isPending ? "pending" : errors.join(", ") || "ok");
  setText(find(".latency", line), isPending ? "" : `${latency_ms.toFixed(1)} ms`);
}

/** Return the contents of the panel for one request. */
function details({ seq, api, version, broker, client_id, member_ids, received_ms, answered_ms, ...more }) {
  const { errors, request, response } = more;
  const isPending = answered_ms === null;
  const outcome = isPending ? `pending for ${duration(nowMs() - received_ms)}` : errors.join(", ");
  const facts = `#${seq}, ${timeOfDay(received_ms)}, ${client_id ?? "no client id"} to broker ${broker}`;
  const members = member_ids.filter(Boolean);
  return [
    h("h3", {}, `${api} v${version} `, h("small", {}, facts)),
    ...(members.length ? [h("p", { class: "why" }, `Members: ${members.join(", ")}`)] : []),
    h("h4", {}, "Request"),
    h("pre", { tabindex: 0 }, bodyOf(request)),
    h("h4", {}, "Response ", h("small", {}, outcome)),
    h("pre", { tabindex: 0, hidden: isPending }, bodyOf(response)),
  ];
}

const bodyOf = (message) => (message ? JSON.stringify(message, null, 2) : "(not recorded)");
