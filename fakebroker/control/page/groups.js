// The view of all groups: filtered by id and state, sorted, and paged, because there may be ten thousand.

import { get, queryOf } from "./api.js";
import { chip, count, div, find, h, number, option, REBALANCING, setText, since, table, updateList } from "./dom.js";
import { on, throttled } from "./live.js";
import { displayId, linkTo } from "./rebalancing.js";

const PAGE = 100;
const SEARCH = "Search group ids";
const TYPES = ["classic", "consumer"];
const STATES = [...REBALANCING, "Stable", "Empty"];
const ORDERS = { busy: "busiest first", unstable: "most rebalances first", name: "by name" };
const COLUMNS = ["Group", "Type", "State", "For", "Gen./epoch", "Members", "Lag", "Rebalances", "Broker"];
const NONE = "No groups. They appear here when consumers join.";
const TYPING_MS = 150;
const INTERVAL_MS = 1000;

export const open = (root, query, signal) => new Groups(root, query, signal);

class Groups {
  #search = h("input", { type: "search", placeholder: SEARCH, "aria-label": SEARCH, "data-first": true });
  #type = h("select", { "aria-label": "Type" }, option("", "any type"), TYPES.map((type) => option(type)));
  #state = h("select", { "aria-label": "State" }, option("", "any state"), STATES.map((state) => option(state)));
  #sort = h("select", { "aria-label": "Order" }, Object.entries(ORDERS).map((each) => option(...each)));
  #total = h("span", { role: "status" });
  #previous = h("button", { type: "button" }, "‹ Previous");
  #next = h("button", { type: "button" }, "Next ›");
  #table = table(COLUMNS, "groups");
  #none = h("p", { class: "none", hidden: true });
  #offset = 0;
  #signal;
  #load;

  constructor(root, query, signal) {
    this.#signal = signal;
    this.#load = throttled(() => this.#fetch(), INTERVAL_MS, signal);
    this.#search.value = query.get("search") ?? "";
    this.#type.value = TYPES.includes(query.get("type")) ? query.get("type") : "";
    this.#state.value = STATES.includes(query.get("state")) ? query.get("state") : "";
    this.#sort.value = query.get("sort") in ORDERS ? query.get("sort") : "busy";
    root.append(
      div("bar", this.#search, this.#type, this.#state, this.#sort, this.#total,
        div("pages", this.#previous, this.#next)),
      this.#table,
      this.#none,
    );
    let typingTimer;
    this.#search.addEventListener("input", () => {
      clearTimeout(typingTimer);
      typingTimer = setTimeout(() => this.#changeQuery(), TYPING_MS);
    });
    for (const select of [this.#type, this.#state, this.#sort])
      select.addEventListener("change", () => this.#changeQuery());
    this.#previous.addEventListener("click", () => this.#turnPage(-PAGE));
    this.#next.addEventListener("click", () => this.#turnPage(PAGE));
    on("groups", ({ groups }) => this.#update(groups), signal);
    on("overview", this.#load, signal); // Records and commits change the lag, without an event.
    on("opened", this.#load, signal);
    this.#load();
  }

  async #fetch() {
    const query = { ...this.#filters(), sort: this.#sort.value, limit: PAGE, offset: this.#offset };
    const { total, groups } = await get("/groups", query, this.#signal);
    updateList(this.#table.body, groups, ({ group_id }) => group_id, makeRow, updateRow);
    const range = `${number(this.#offset + 1)} to ${number(this.#offset + groups.length)} of `;
    setText(this.#total, (total > groups.length ? range : "") + count(total, "group"));
    this.#previous.hidden = this.#offset === 0;
    this.#next.hidden = this.#offset + PAGE >= total;
    this.#none.hidden = total > 0;
    setText(this.#none, query.search || query.type || query.state ? "No matching groups." : NONE);
  }

  #filters() {
    const [search, type, state] = [this.#search, this.#type, this.#state].map(({ value }) => value || null);
    return { search, type, state };
  }

  #changeQuery() {
    if (this.#signal.aborted) return;
    this.#offset = 0;
    const sort = this.#sort.value === "busy" ? null : this.#sort.value;
    history.replaceState(null, "", `#groups${queryOf({ ...this.#filters(), sort })}`);
    this.#load();
  }

  #turnPage(by) {
    this.#offset = Math.max(0, this.#offset + by);
    this.#load();
  }

  /** Update rows at once from an event; the list itself follows with the next request. */
  #update(changed) {
    const rows = new Map([...this.#table.body.children].map((row) => [row.dataset.key, row]));
    for (const group of changed) if (rows.has(group.group_id)) updateRow(rows.get(group.group_id), group);
    this.#load();
  }
}

function makeRow({ group_id }) {
  const link = h("a", { href: linkTo(group_id), "data-row": true }, displayId(group_id));
  const names = ["type", "state", "for", "generation", "members", "lag", "rebalances", "broker"];
  return h("tr", {}, h("td", {}, link, h("small", { class: "why" })), names.map((name) => h("td", { class: name })));
}

function updateRow(row, { type, state, why, since_ms, generation_id, members, lag, rebalances, coordinator }) {
  row.dataset.state = state;
  setText(find(".why", row), why);
  setText(find(".type", row), type ?? "");
  const place = find(".state", row);
  if (place.textContent !== state) place.replaceChildren(chip(state));
  const time = find(".for", row);
  if (Number(time.dataset.ms) !== since_ms) {
    time.dataset.ms = since_ms;
    time.replaceChildren(since(since_ms));
  }
  setText(find(".generation", row), generation_id);
  setText(find(".members", row), number(members));
  setText(find(".lag", row), number(lag));
  setText(find(".rebalances", row), number(rebalances));
  setText(find(".broker", row), coordinator ?? "none");
}
