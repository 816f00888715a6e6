// The view of all transactional ids: filtered by id and state, those with open transactions first; and of hanging
// transactions, which no coordinator knows.

import { get, queryOf } from "./api.js";
import { chip, count, div, find, h, number, option, row, setText, since, table, updateList } from "./dom.js";
import { on, throttled } from "./live.js";

const SHOWN = 200;
const SEARCH = "Search transactional ids";
const STATES = ["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty"];
const COLUMNS = ["Transactional id", "State", "For", "Producer", "Epoch", "Partitions", "Broker"];
const NONE = "No transactional ids. They appear here when producers call initTransactions().";
const TYPING_MS = 150;
const INTERVAL_MS = 500;

export const linkTo = (transactionalId) => `#transactions/${encodeURIComponent(transactionalId)}`;

export function open(root, query, signal) {
  const search = h("input", { type: "search", placeholder: SEARCH, "aria-label": SEARCH, "data-first": true });
  const state = h("select", { "aria-label": "State" }, option("", "any state"), STATES.map((each) => option(each)));
  const total = h("span", { role: "status" });
  const list = table(COLUMNS, "groups");
  const none = h("p", { class: "none", hidden: true });
  const hanging = table(["Partition", "Producer", "Epoch", "First offset"]);
  const hangingPart = h("section", { hidden: true },
    h("h3", {}, "Hanging transactions ", h("small", {}, "open in a partition, but unknown to coordinators")), hanging);
  search.value = query.get("search") ?? "";
  state.value = STATES.includes(query.get("state")) ? query.get("state") : "";
  root.append(div("bar", search, state, total), list, none, hangingPart);

  const load = throttled(async () => {
    const filters = { search: search.value, state: state.value || null };
    const found = await get("/transactions", { ...filters, sort: "waiting", limit: SHOWN }, signal);
    updateList(list.body, found.transactions, ({ transactional_id }) => transactional_id, makeRow, updateRow);
    setText(total, (found.total > SHOWN ? `first ${SHOWN} of ` : "") + count(found.total, "transactional id"));
    none.hidden = found.total > 0;
    setText(none, filters.search || filters.state ? "No matching transactional ids." : NONE);
    const hanging_transactions = await get("/hanging_transactions", {}, signal);
    hangingPart.hidden = hanging_transactions.length === 0;
    hanging.body.replaceChildren(...hanging_transactions.map(
      ({ topic, partition, producer_id, producer_epoch, first_offset }) =>
        row(`${topic}-${partition}`, producer_id, producer_epoch, number(first_offset))));
  }, INTERVAL_MS, signal);

  function changeQuery() {
    if (signal.aborted) return;
    const given = { search: search.value || null, state: state.value || null };
    history.replaceState(null, "", `#transactions${queryOf(given)}`);
    load();
  }
  let typingTimer;
  search.addEventListener("input", () => {
    clearTimeout(typingTimer);
    typingTimer = setTimeout(changeQuery, TYPING_MS);
  });
  state.addEventListener("change", changeQuery);
  on("overview", load, signal);
  on("opened", load, signal);
  load();
}

function makeRow({ transactional_id }) {
  const link = h("a", { href: linkTo(transactional_id), "data-row": true }, transactional_id);
  const names = ["state", "for", "producer", "epoch", "parts", "broker"];
  return h("tr", {}, h("td", {}, link, h("small", { class: "why" })), names.map((name) => h("td", { class: name })));
}

function updateRow(line, transaction) {
  line.dataset.state = transaction.state;
  setText(find(".why", line), transaction.why);
  const place = find(".state", line);
  if (place.textContent !== transaction.state) place.replaceChildren(chip(transaction.state));
  const time = find(".for", line);
  if (Number(time.dataset.ms) !== transaction.last_update_ms) {
    time.dataset.ms = transaction.last_update_ms;
    time.replaceChildren(since(transaction.last_update_ms));
  }
  setText(find(".producer", line), transaction.producer_id);
  setText(find(".epoch", line), transaction.producer_epoch);
  setText(find(".parts", line), number(transaction.partitions.length));
  setText(find(".broker", line), transaction.coordinator ?? "none");
}
