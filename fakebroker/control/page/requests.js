// The requests as they come, with their bodies decoded. Without a filter they come by the event stream, which samples
// when there are many; with one the journal is asked for every request that is meant.

import { get, queryOf } from "./api.js";
import { count, div, duration, find, h, keyed, number, option, rate, row, table, timeOfDay, write } from "./dom.js";
import { calmly, nowMs, on, overview } from "./live.js";
import { linkTo, shown } from "./now.js";

const KEPT = 200;
const REST_MS = 500;
const REFRESHED = 50;
const SHOWN_GROUPS = 3;
const FILTERS = { api: "API", group: "Group", client_id: "Client id", error: "Error" };
const COLUMNS = ["Time", "API", "Broker", "Client", "Groups", "Answer", "after"];

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
    this.#poll = calmly(() => this.#askJournal(signal), REST_MS, signal);
    this.#refresh = calmly(() => this.#askForAnswers(), REST_MS, signal);
    for (const each of Object.values(this.#fields)) each.addEventListener("change", () => this.#anew());
    this.#pause.addEventListener("click", () => this.#pauseOrGoOn());
    on("requests", (news) => this.#hear(news), signal);
    on("overview", () => this.#tick(), signal);
    on("opened", () => this.#isPaused || this.#anew(), signal);
    this.#anew();
  }

  get #filters() {
    const given = Object.entries(this.#fields).map(([name, { value }]) => [name, value.trim()]);
    return Object.fromEntries(given.filter(([, value]) => value));
  }

  get #isFiltered() {
    return Object.keys(this.#filters).length > 0;
  }

  #anew() {
    history.replaceState(null, "", `#requests${queryOf(this.#filters)}`);
    this.#requests = [];
    this.#last = null;
    this.#take([]);
    write(this.#note, "");
    if (!this.#isPaused) this.#poll();
  }

  #pauseOrGoOn() {
    this.#isPaused = !this.#isPaused;
    this.#pause.setAttribute("aria-pressed", this.#isPaused);
    write(this.#pause, this.#isPaused ? "Go on" : "Pause");
  }

  #take(more) {
    const bySeq = new Map([...this.#requests, ...more].map((request) => [request.seq, request]));
    this.#requests = [...bySeq.values()].sort((one, other) => other.seq - one.seq).slice(0, KEPT);
    const make = (request) => makeRow(request, () => this.#show(request));
    keyed(this.#table.body, this.#requests, ({ seq }) => seq, make, updateRow);
  }

  /** What the event stream tells. */
  #hear({ sampled, seen, requests }) {
    if (this.#isPaused || this.#isFiltered) return;
    this.#take(requests);
    const some = `Sampled: ${requests.length} of the last ${count(seen, "request")} shown`;
    const words = `${some}, at ${rate(overview?.rates.requests_per_s)}/s. With a filter every one is.`;
    write(this.#note, sampled ? words : "Every request, the newest first.");
  }

  #tick() {
    if (this.#isPaused) return;
    if (this.#isFiltered) this.#poll();
    this.#refresh();
  }

  async #askJournal(signal) {
    const wanted = this.#filters;
    const { requests, last } = await get("/journal", { ...wanted, after: this.#last, limit: KEPT }, signal);
    if (this.#isPaused || JSON.stringify(wanted) !== JSON.stringify(this.#filters)) return;
    this.#last = last;
    this.#take(requests);
    const shown_ = number(this.#requests.length);
    const all = `Every request like this that the journal still has, at most ${KEPT}: ${shown_} shown.`;
    const many = `${KEPT} requests like this; there are more, or they come faster than they can be shown.`;
    write(this.#note, requests.length < KEPT ? all : many);
  }

  /** Requests that were still waiting: has their answer gone out? */
  async #askForAnswers() {
    const waiting = this.#requests.filter(({ answered_ms }) => answered_ms === null).slice(0, REFRESHED);
    if (!waiting.length) return;
    const found = await fresh(waiting.map(({ seq }) => seq));
    const shown_ = new Set(this.#requests.map(({ seq }) => seq));
    this.#take(found.filter(({ seq }) => shown_.has(seq)));
  }

  async #show(request) {
    const key = String(request.seq);
    for (const line of this.#table.body.children) line.toggleAttribute("data-shown", line.dataset.key === key);
    this.#detail.hidden = false;
    this.#detail.replaceChildren(...described((await fresh([request.seq]))[0] ?? request));
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

/** Requests as they are now; but for those that the journal has no more. */
async function fresh(seqs) {
  const { requests } = await get("/journal", { seqs: seqs.join(","), limit: seqs.length });
  return requests;
}

function makeRow({ received_ms, api, version, broker, client_id, group_ids }, show) {
  const name = h("button", { type: "button", class: "link", "data-row": true, onclick: show }, `${api} v${version}`);
  const groups = group_ids.slice(0, SHOWN_GROUPS).map((id) => [h("a", { href: linkTo(id) }, shown(id)), " "]);
  if (group_ids.length > SHOWN_GROUPS) groups.push(`and ${group_ids.length - SHOWN_GROUPS} more`);
  const answer = [h("span", { class: "answer" }), h("span", { class: "latency" })];
  return row(timeOfDay(received_ms), name, broker, client_id ?? "", groups, ...answer);
}

function updateRow(line, { answered_ms, latency_ms, errors }) {
  const waits = answered_ms === null;
  line.toggleAttribute("data-waits", waits);
  line.toggleAttribute("data-failed", errors.length > 0);
  write(find(".answer", line), waits ? "waits" : errors.join(", ") || "ok");
  write(find(".latency", line), waits ? "" : `${latency_ms.toFixed(1)} ms`);
}

/** Everything about one request. */
function described({ seq, api, version, broker, client_id, member_ids, received_ms, answered_ms, ...more }) {
  const { errors, request, response } = more;
  const waits = answered_ms === null;
  const answer = waits ? `none yet, after ${duration(nowMs() - received_ms)}` : errors.join(", ");
  const facts = `#${seq}, ${timeOfDay(received_ms)}, ${client_id ?? "no client id"} to broker ${broker}`;
  const members = member_ids.filter(Boolean);
  return [
    h("h3", {}, `${api} v${version} `, h("small", {}, facts)),
    ...(members.length ? [h("p", { class: "why" }, `Members: ${members.join(", ")}`)] : []),
    h("h4", {}, "Request"),
    h("pre", { tabindex: 0 }, bodyOf(request)),
    h("h4", {}, "Response ", h("small", {}, answer)),
    h("pre", { tabindex: 0, hidden: waits }, bodyOf(response)),
  ];
}

const bodyOf = (message) => (message ? JSON.stringify(message, null, 2) : "(not kept)");
