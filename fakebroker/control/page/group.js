// The view of one group: explanation of its state, timeline, members, changes and offsets, and its commands.

import { get, groupPath, post } from "./api.js";
import { moveCoordinator, targetOptions } from "./brokers.js";
import {
  chip, count, div, duration, find, h, number, option, REBALANCING, row, setText, shortNames, table, timeOfDay, updateList,
} from "./dom.js";
import { button, on, overview, throttled } from "./live.js";
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
  #load;
  #timeline = new Timeline();
  #state = h("span");
  #facts = h("span", { class: "facts" });
  #why = h("p", { class: "explanation" });
  #deadlines = table(["In", "At", "What happens"], "deadlines");
  #members = table(["Member", "Client", "Host", "Static id", "Session", "Rebalance", "Assigned", ""], "members");
  #changes = table(["Time", "Gen.", "State", "Cause", "Members"]);
  #offsets = table(["Partition", "Offset", "Metadata"]);
  #dropped = h("small");
  #memberCount = h("small");
  #offsetCount = h("small");

  constructor(root, groupId, signal) {
    [this.#id, this.#path, this.#signal] = [groupId, groupPath(groupId), signal];
    root.append(
      div("bar", h("a", { href: "#groups" }, "‹ All groups"), h("h2", { class: "id" }, displayId(groupId)),
        this.#state, this.#facts),
      this.#why, this.#timeline.element, commands(groupId, this.#path, signal),
      h("h3", {}, "Members ", this.#memberCount), this.#members,
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
    setText(this.#dropped, droppedText(timeline));
    this.#timeline.show(timeline);
    this.#view = await get(this.#path, {}, this.#signal);
    this.#show();
  }

  #show() {
    const { state, generation_id, protocol_name, members, coordinator, explanation, offsets, deadlines } = this.#view;
    this.#state.replaceChildren(chip(state));
    this.#why.dataset.state = state;
    setText(this.#why, explanation);
    const place = coordinator === null ? "no coordinator" : `coordinator: broker ${coordinator}`;
    const protocol = protocol_name ?? "no protocol";
    setText(this.#facts, [`generation ${generation_id}`, protocol, count(members.length, "member"), place].join(" · "));
    showDeadlines(this.#deadlines, deadlines);
    showMembers(this.#members.body, this.#view, this.#path);
    showChanges(this.#changes.body, this.#moments);
    setText(this.#memberCount, number(members.length));
    setText(this.#offsetCount, number(offsets.length));
    this.#offsets.body.replaceChildren(...offsets.map(({ topic, partition, offset, metadata }) =>
      row(`${topic}-${partition}`, number(offset), metadata)));
  }
}

// Tables

function showDeadlines(table, deadlines) {
  const shown = deadlines.slice(0, SHOWN_DEADLINES);
  const lines = shown.map(({ in_s, at_ms, text }) => row(duration(in_s * 1000), timeOfDay(at_ms), text));
  const more = deadlines.length - shown.length;
  if (more > 0) lines.push(row("", "", `and ${count(more, "later deadline")}`));
  table.body.replaceChildren(...(lines.length ? lines : [row("", "", "Nothing, until a request arrives.")]));
}

const MISSING = { JoinGroup: "has not rejoined", SyncGroup: "has not sent a SyncGroup" };

function showMembers(body, { members, leader_id }, path) {
  const names = shortNames(members.map(({ member_id }) => member_id));
  const make = (member) => memberRow(member, names.get(member.member_id), path);
  updateList(body, members, ({ member_id }) => member_id, make, (line, member) => {
    const { member_id, client_id, client_host, instance_id, is_expected, missing_request } = member;
    line.classList.toggle("missing", missing_request !== null);
    const marks = [member_id === leader_id && "leader", is_expected && "expected", MISSING[missing_request]];
    setText(find(".marks", line), marks.filter(Boolean).join(", "));
    const timeouts = [`${member.session_timeout_ms} ms`, `${member.rebalance_timeout_ms} ms`];
    const cells = [client_id, client_host.replace(/^\//, ""), instance_id ?? "", ...timeouts, assigned(member)];
    cells.forEach((text, at) => setText(line.children[at + 1], text));
  });
}

/** Return the assigned partitions, or the size of an assignment that is not a consumer's. */
function assigned({ assignment, assigned_partitions }) {
  if (!assignment) return "";
  return assigned_partitions?.join(", ") ?? `${Math.floor((assignment.length * 3) / 4)} bytes`;
}

function memberRow({ member_id, instance_id }, name, path) {
  const first = [h("span", { title: member_id, tabindex: 0, "data-row": true }, name), " ", h("b", { class: "marks" })];
  const buttons = [
    button("Evict", () => post(`${path}/evict`, { member: member_id }), "Remove the member, like an admin client"),
    button("Expire", () => post(`${path}/expire`, { member: member_id }), "Expire the session of the member now"),
  ];
  const fence = () => post(`${path}/fence`, { instance_id });
  if (instance_id !== null) buttons.push(button("Fence", fence, "Replace the static member, like another process"));
  return row(first, "", "", "", "", "", "", h("span", { class: "buttons" }, buttons));
}

/** Return what the history does not have, or this page does not show. */
function droppedText({ moments, dropped }) {
  const parts = moments.length > SHOWN_CHANGES ? [`the latest ${SHOWN_CHANGES}`] : [];
  if (dropped.count) parts.push(`${count(dropped.count, "earlier change")} dropped from the history`);
  if (!dropped.is_exact) parts.push("earlier changes may have been dropped");
  return parts.join("; ");
}

function showChanges(body, moments) {
  const names = shortNames(moments.flatMap(({ members, left }) => [...members, ...left]));
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

function commands(groupId, path, signal) {
  const held = h("select", { "aria-label": "State to hold in" }, REBALANCING.map((state) => option(state)));
  const to = h("select", { "aria-label": "Move coordinator to", onfocus: refill });
  function refill() {
    const chosen = to.value;
    to.replaceChildren(...targetOptions(null));
    if (chosen) to.value = chosen;
  }
  on("overview", () => to.options.length || refill(), signal);
  if (overview) refill();
  return div("bar actions",
    button("Force rebalance", () => post(`${path}/force_rebalance`), "Start a rebalance; members stay and must rejoin"),
    h("span", { class: "set" }, "Hold in ", held,
      button("Hold", () => post(`${path}/hold`, { state: held.value }), "Keep the group in this state until released"),
      button("Release", () => post(`${path}/release`), "End the hold")),
    h("span", { class: "set" }, "Move coordinator to ", to,
      button("Move", () => moveCoordinator({ group_id: groupId }, to.value), "Moves the whole offsets partition")));
}
