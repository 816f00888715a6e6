// The view of one group: explanation of its state, timeline, members, changes and offsets, and its commands.

import { get, groupPath, post } from "./api.js";
import { destination, targetOptions } from "./brokers.js";
import {
  chip, count, div, duration, find, h, number, option, REBALANCING, REBALANCING_OF, row, setText, table, timeOfDay,
  updateList,
} from "./dom.js";
import { button, on, overview, throttled } from "./live.js";
import { Members } from "./members.js";
import { describe, withoutZombies } from "./moments.js";
import { displayId } from "./rebalancing.js";
import { Timeline } from "./timeline.js";

const INTERVAL_MS = 500;
const SHOWN_DEADLINES = 8;
const SHOWN_CHANGES = 60;

export const open = (root, groupId, signal) => new Group(root, groupId, signal);

class Group {
  #id;
  #path;
  #signal;
  #view = null;
  #moments = [];
  #names = new Map();
  #load;
  #timeline = new Timeline();
  #state = h("span");
  #facts = h("span", { class: "facts" });
  #why = h("p", { class: "explanation" });
  #deadlines = table(["In", "At", "What happens"], "deadlines");
  #members;
  #held = h("select", { "aria-label": "State to hold in" });
  #changes = table(["Time", "Gen./epoch", "State", "Cause", "Members"]);
  #offsets = table(["Partition", "Offset", "Lag", "Metadata"]);
  #dropped = h("small");
  #memberCount = h("small");
  #offsetCount = h("small");

  constructor(root, groupId, signal) {
    [this.#id, this.#path, this.#signal] = [groupId, groupPath(groupId), signal];
    this.#members = new Members(this.#path);
    offerStates(this.#held, "classic");
    root.append(
      div("bar", h("a", { href: "#groups" }, "‹ All groups"), h("h2", { class: "id" }, displayId(groupId)),
        this.#state, this.#facts),
      this.#why, this.#timeline.element, commands(this.#path, this.#held, signal),
      h("h3", {}, "Members ", this.#memberCount), this.#members.element,
      h("h3", {}, "What ends when"), this.#deadlines,
      div("columns",
        div("", h("h3", {}, "Changes ", this.#dropped), this.#changes),
        div("", h("h3", {}, "Committed offsets ", this.#offsetCount), this.#offsets)));
    this.#load = throttled(() => this.#fetch(), INTERVAL_MS, signal);
    // The timeline ends now, and the explanation of a rebalance has the time left, so both change without events.
    let overviews = 0;
    const isDue = () => REBALANCING.includes(this.#view?.state) || overviews++ % 2 === 1;
    on("overview", () => isDue() && this.#load(), signal);
    on("timeline", this.#load, signal);
    on("groups", ({ groups }) => groups.some(({ group_id }) => group_id === groupId) && this.#load(), signal);
    on("opened", this.#load, signal);
    window.addEventListener("resize", this.#load, { signal });
    this.#load();
  }

  async #fetch() {
    const timeline = await get(`${this.#path}/timeline`, this.#timeline.query, this.#signal).catch((error) => {
      if (error.status !== 404) throw error;
      setText(this.#why, error.message);
    });
    if (!timeline) return;
    this.#moments = withoutZombies(timeline.moments);
    this.#names = new Map(Object.entries(timeline.names));
    setText(this.#dropped, droppedText(timeline));
    this.#timeline.show(timeline);
    this.#view = await get(this.#path, {}, this.#signal);
    this.#show();
  }

  #show() {
    const { state, members, explanation, offsets, deadlines } = this.#view;
    this.#state.replaceChildren(chip(state));
    this.#why.dataset.state = state;
    setText(this.#why, explanation);
    offerStates(this.#held, this.#view.type ?? "classic");
    setText(this.#facts, facts(this.#view).join(" · "));
    showDeadlines(this.#deadlines, deadlines);
    this.#members.show(this.#view, this.#names);
    showChanges(this.#changes.body, this.#moments, this.#names);
    setText(this.#memberCount, number(members.length));
    setText(this.#offsetCount, number(offsets.length));
    this.#offsets.body.replaceChildren(...offsets.map(({ topic, partition, offset, lag, metadata }) =>
      row(`${topic}-${partition}`, number(offset), lag === null ? "" : number(lag), metadata)));
  }
}

function facts({ generation_id, assignment_epoch, protocol_name, members, coordinator, held_states }) {
  const epochs = [`epoch ${generation_id}`, `assignment epoch ${assignment_epoch}`];
  const numbers = assignment_epoch === null ? [`generation ${generation_id}`] : epochs;
  const place = coordinator === null ? "no coordinator" : `coordinator: broker ${coordinator}`;
  const held = held_states.map((state) => `held in ${state}`);
  return [...numbers, protocol_name ?? "no protocol", count(members.length, "member"), place, ...held];
}

// Tables

function showDeadlines(table, deadlines) {
  const shown = deadlines.slice(0, SHOWN_DEADLINES);
  const lines = shown.map(({ in_s, at_ms, text }) => row(duration(in_s * 1000), timeOfDay(at_ms), text));
  const more = deadlines.length - shown.length;
  if (more > 0) lines.push(row("", "", `and ${count(more, "later deadline")}`));
  table.body.replaceChildren(...(lines.length ? lines : [row("", "", "Nothing, until a request arrives.")]));
}

/** Return what the history does not have, or this page does not show. */
function droppedText({ moments, dropped }) {
  const parts = moments.length > SHOWN_CHANGES ? [`the latest ${SHOWN_CHANGES}`] : [];
  if (dropped.count) parts.push(`${count(dropped.count, "earlier change")} dropped from the history`);
  if (!dropped.is_exact) parts.push("earlier changes may have been dropped");
  return parts.join("; ");
}

function showChanges(body, moments, names) {
  // With a manual clock, changes may be equal, times included. The number of occurrences makes the keys unique.
  const occurrences = new Map();
  const lines = moments.slice(-SHOWN_CHANGES).map((moment) => {
    const { states, cause, changes } = describe(moment, names);
    const cells = [timeOfDay(moment.at_ms), moment.generation_id, states, cause, changes];
    const key = JSON.stringify(cells);
    occurrences.set(key, (occurrences.get(key) ?? 0) + 1);
    return { cells, key: key + occurrences.get(key) };
  });
  updateList(body, lines.reverse(), ({ key }) => key, ({ cells }) => row(...cells));
}

// Commands

/** Offer the states that a group of a type can be held in. */
function offerStates(held, type) {
  if (held.dataset.type === type) return;
  held.dataset.type = type;
  held.replaceChildren(...REBALANCING_OF[type].map((state) => option(state)));
}

function commands(path, held, signal) {
  const to = h("select", { "aria-label": "Move coordinator to", onfocus: refill });
  function refill() {
    const chosen = to.value;
    to.replaceChildren(...targetOptions(null));
    if (chosen) to.value = chosen;
  }
  on("overview", () => to.options.length || refill(), signal);
  if (overview) refill();
  return div("bar actions",
    button("Force rebalance", () => post(`${path}/rebalance`), "Members must rejoin, or the assignor runs again"),
    h("span", { class: "set" }, "Hold in ", held,
      button("Hold", () => post(`${path}/hold`, { state: held.value }), "Keep the group in this state until released"),
      button("Release", () => post(`${path}/release`), "End the hold")),
    h("span", { class: "set" }, "Move coordinator to ", to,
      button("Move", () => post(`${path}/move_coordinator`, destination(to.value)), "Moves the whole offsets partition")));
}
