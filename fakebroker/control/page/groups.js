// The list of groups: search, state, order; a page of it at a time, as there may be ten thousand.

import { get, queryOf } from "./api.js";
import { chip, count, div, find, h, keyed, number, option, since, table, write } from "./dom.js";
import { calmly, on } from "./live.js";
import { linkTo, shown } from "./now.js";

const PAGE = 100;
const SEARCH = "Search group ids";
const STATES = ["PreparingRebalance", "CompletingRebalance", "Stable", "Empty"];
const ORDERS = { busy: "busiest first", unstable: "most rebalances first", name: "by name" };
const COLUMNS = ["Group", "State", "for", "Gen.", "Members", "Rebalances", "Broker"];
const NONE = "There are no groups. A consumer that joins one makes it appear here.";
const TYPING_MS = 150;
const REST_MS = 1000;

export const open = (root, query, signal) => new Groups(root, query, signal);

class Groups {
  #search = h("input", { type: "search", placeholder: SEARCH, "aria-label": SEARCH, "data-first": true });
  #state = h("select", { "aria-label": "State" }, option("", "any state"), STATES.map((state) => option(state)));
  #sort = h("select", { "aria-label": "Order" }, Object.entries(ORDERS).map((each) => option(...each)));
  #total = h("span", { role: "status" });
  #back = h("button", { type: "button" }, "‹ Back");
  #forth = h("button", { type: "button" }, "More ›");
  #table = table(COLUMNS, "groups");
  #none = h("p", { class: "none", hidden: true });
  #offset = 0;
  #signal;
  #load;

  constructor(root, query, signal) {
    this.#signal = signal;
    this.#load = calmly(() => this.#ask(), REST_MS, signal);
    this.#search.value = query.get("search") ?? "";
    this.#state.value = STATES.includes(query.get("state")) ? query.get("state") : "";
    this.#sort.value = query.get("sort") in ORDERS ? query.get("sort") : "busy";
    root.append(
      div("bar", this.#search, this.#state, this.#sort, this.#total, div("pages", this.#back, this.#forth)),
      this.#table,
      this.#none,
    );
    let typed;
    this.#search.addEventListener("input", () => {
      clearTimeout(typed);
      typed = setTimeout(() => this.#anew(), TYPING_MS);
    });
    this.#state.addEventListener("change", () => this.#anew());
    this.#sort.addEventListener("change", () => this.#anew());
    this.#back.addEventListener("click", () => this.#turn(-PAGE));
    this.#forth.addEventListener("click", () => this.#turn(PAGE));
    on("groups", ({ groups }) => this.#hear(groups), signal);
    on("opened", this.#load, signal);
    this.#load();
  }

  async #ask() {
    const wanted = { search: this.#search.value, state: this.#state.value || null, sort: this.#sort.value };
    const { total, groups } = await get("/groups", { ...wanted, limit: PAGE, offset: this.#offset }, this.#signal);
    keyed(this.#table.body, groups, ({ group_id }) => group_id, makeRow, updateRow);
    const part = `${number(this.#offset + 1)} to ${number(this.#offset + groups.length)} of `;
    write(this.#total, (total > groups.length ? part : "") + count(total, "group"));
    this.#back.hidden = this.#offset === 0;
    this.#forth.hidden = this.#offset + PAGE >= total;
    this.#none.hidden = total > 0;
    write(this.#none, wanted.search || wanted.state ? "No group is like this." : NONE);
  }

  #anew() {
    if (this.#signal.aborted) return;
    this.#offset = 0;
    const sort = this.#sort.value === "busy" ? null : this.#sort.value;
    const shown_ = { search: this.#search.value || null, state: this.#state.value || null, sort };
    history.replaceState(null, "", `#groups${queryOf(shown_)}`);
    this.#load();
  }

  #turn(by) {
    this.#offset = Math.max(0, this.#offset + by);
    this.#load();
  }

  #hear(changed) {
    const rows = new Map([...this.#table.body.children].map((row) => [row.dataset.key, row]));
    for (const group of changed) if (rows.has(group.group_id)) updateRow(rows.get(group.group_id), group);
    this.#load();
  }
}

function makeRow({ group_id }) {
  const link = h("a", { href: linkTo(group_id), "data-row": true }, shown(group_id));
  const names = ["state", "for", "generation", "members", "rebalances", "broker"];
  return h("tr", {}, h("td", {}, link, h("small", { class: "why" })), names.map((name) => h("td", { class: name })));
}

function updateRow(row, { state, why, since_ms, generation_id, members, rebalances, coordinator }) {
  row.dataset.state = state;
  write(find(".why", row), why);
  const place = find(".state", row);
  if (place.textContent !== state) place.replaceChildren(chip(state));
  const time = find(".for", row);
  if (Number(time.dataset.ms) !== since_ms) {
    time.dataset.ms = since_ms;
    time.replaceChildren(since(since_ms));
  }
  write(find(".generation", row), generation_id);
  write(find(".members", row), number(members));
  write(find(".rebalances", row), number(rebalances));
  write(find(".broker", row), coordinator ?? "none");
}
