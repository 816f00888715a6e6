// The region "Rebalancing now": groups that are rebalancing, for how long and why, and recent changes of any group.

import { get } from "./api.js";
import * as brokers from "./brokers.js";
import { chip, count, find, h, number, REBALANCING, setText, since, timeOfDay, updateList } from "./dom.js";
import { nowMs, on, overview, throttled } from "./live.js";

const SHOWN = 5;
const MARKED = 100;
const INTERVAL_MS = 1000;
const SHOWN_CHANGES = 6;
const RECENT_MS = 60_000;

export function start() {
  const list = h("ol", { class: "rebalancing", "aria-label": "Groups that are rebalancing" });
  const recent = h("ol", { class: "recent", "aria-label": "Recent changes" });
  const head = h("h2", {});
  const more = h("p", { class: "more" });
  let known = new Set();
  const states = new Set(REBALANCING); // Without those that no group is in, which saves requests.
  find("#now").append(head, list, more, h("h3", {}, "Recent changes"), recent);

  const load = throttled(async () => {
    const requests = [...states].map((state) => get("/groups", { state, sort: "busy", limit: MARKED }));
    const lists = await Promise.all(requests);
    const total = lists.reduce((sum, list) => sum + list.total, 0);
    const marked = lists.flatMap((list) => list.groups);
    const groups = marked.sort((one, other) => one.since_ms - other.since_ms).slice(0, SHOWN);
    find("#now").dataset.rebalancing = total > 0;
    setText(head, total ? `${count(total, "group")} rebalancing` : "No group is rebalancing");
    updateList(list, groups, ({ group_id }) => group_id, makeCard, updateCard);
    known = new Set(groups.map(({ group_id }) => group_id));
    more.replaceChildren(...(total > groups.length ? [`and ${number(total - groups.length)} more: `, ...links()] : []));
    document.title = total ? `(${total}) fakebroker` : "fakebroker";
    brokers.markRebalancing(marked.map(({ group_id }) => group_id));
  }, INTERVAL_MS);

  const changes = new Map();
  on("groups", ({ groups }) => {
    for (const { state } of groups) if (REBALANCING.includes(state)) states.add(state);
    // Older changes are reported when a coordinator loads its groups.
    for (const group of groups.filter(({ since_ms }) => nowMs() - since_ms < RECENT_MS)) {
      changes.delete(group.group_id);
      changes.set(group.group_id, group);
    }
    while (changes.size > SHOWN_CHANGES) changes.delete(changes.keys().next().value);
    updateList(recent, [...changes.values()].reverse(), keyOf, makeChange);
    if (groups.some(({ group_id, state }) => known.has(group_id) || REBALANCING.includes(state))) load();
  });
  on("overview", ({ groups_by_state }) => {
    for (const state of REBALANCING) {
      if (groups_by_state[state]) states.add(state);
      else states.delete(state);
    }
    if (known.size || states.size) load();
  });
  on("opened", () => {
    for (const state of REBALANCING) states.add(state);
    load();
  });
}

/** Return links to the complete lists, one for each state. */
function links() {
  const states = REBALANCING.filter((state) => overview?.groups_by_state[state]);
  const label = (state) => `${number(overview.groups_by_state[state])} ${state}`;
  return states.flatMap((state) => [h("a", { href: `#groups?state=${state}` }, label(state)), " "]);
}

function makeCard({ group_id }) {
  const parts = ["state", "time", "until", "why"].map((name) => h("span", { class: name }));
  return h("li", {}, h("a", { href: linkTo(group_id) }, h("b", {}, displayId(group_id)), parts));
}

function updateCard(card, { state, why, since_ms, until_ms, members, generation_id }) {
  const place = find(".state", card);
  if (place.textContent !== state) place.replaceChildren(chip(state));
  const time = find(".time", card);
  if (Number(time.dataset.ms) !== since_ms) {
    time.dataset.ms = since_ms;
    time.replaceChildren("for ", since(since_ms));
  }
  setText(find(".until", card), until_ms === null ? "" : `until ${timeOfDay(until_ms).slice(0, 8)} at the latest`);
  setText(find(".why", card), why);
  card.title = `generation ${generation_id}, ${count(members, "member")}`;
}

const keyOf = ({ group_id, state, since_ms, why }) => [group_id, state, since_ms, why];

function makeChange({ group_id, state, why, since_ms }) {
  const link = h("a", { href: linkTo(group_id) }, displayId(group_id));
  const reason = h("span", { class: "why" }, why);
  return h("li", {}, h("time", {}, timeOfDay(since_ms)), " ", link, " ", chip(state), " ", reason);
}

export const linkTo = (groupId) => `#groups/${encodeURIComponent(groupId)}`;

/** Return a visible text for a group id. Old groups may have the empty id. */
export const displayId = (groupId) => (groupId === "" ? "(empty id)" : groupId);
