// One group, live: why it is in its state, its timeline, its members and offsets, and what can be done to it by hand.

import { get, groupPath, post } from "./api.js";
import { partitionsOf } from "./assignment.js";
import { move, places } from "./brokers.js";
import {
  chip, count, div, find, h, keyed, number, option, REBALANCING, row, shortNames, table, timeOfDay, write,
} from "./dom.js";
import { button, calmly, on, overview } from "./live.js";
import { told, withoutZombies } from "./moments.js";
import { shown } from "./now.js";
import { Picture } from "./picture.js";

const REST_MS = 500;
const TOLD = 60;

export const open = (root, groupId, signal) => new Group(root, groupId, signal);

class Group {
  #id;
  #path;
  #signal;
  #view = null;
  #moments = [];
  #loadAll;
  #picture = new Picture();
  #state = h("span");
  #facts = h("span", { class: "facts" });
  #why = h("p", { class: "explanation" });
  #members = table(["Member", "Client", "Host", "Static id", "Session", "Rebalance", "Assigned", ""], "members");
  #changes = table(["Time", "Gen.", "State", "Cause", "In and out"]);
  #offsets = table(["Partition", "Offset", "Metadata"]);
  #memberCount = h("small");
  #offsetCount = h("small");

  constructor(root, groupId, signal) {
    [this.#id, this.#path, this.#signal] = [groupId, groupPath(groupId), signal];
    root.append(
      div("bar", h("a", { href: "#groups" }, "‹ All groups"), h("h2", { class: "id" }, shown(groupId)),
        this.#state, this.#facts),
      this.#why, this.#picture.element, actions(groupId, this.#path, signal),
      h("h3", {}, "Members ", this.#memberCount), this.#members,
      div("columns",
        div("", h("h3", {}, "Changes"), this.#changes),
        div("", h("h3", {}, "Committed offsets ", this.#offsetCount), this.#offsets)));
    this.#loadAll = calmly(() => this.#askAll(), REST_MS, signal);
    // The picture tells how much time has passed and, while the group rebalances, the explanation how much is left.
    let overviews = 0;
    on("overview", () => (REBALANCING.includes(this.#view?.state) || overviews++ % 2 === 1) && this.#loadAll(), signal);
    on("timeline", this.#loadAll, signal);
    on("groups", ({ groups }) => groups.some(({ group_id }) => group_id === groupId) && this.#loadAll(), signal);
    on("opened", this.#loadAll, signal);
    window.addEventListener("resize", this.#loadAll, { signal });
    this.#loadAll();
  }

  async #askAll() {
    const timeline = await get(`${this.#path}/timeline`, this.#picture.query, this.#signal).catch((error) => {
      if (error.status !== 404) throw error;
      write(this.#why, error.message);
    });
    if (!timeline) return;
    this.#moments = withoutZombies(timeline.moments);
    this.#picture.take(timeline);
    await this.#ask();
  }

  async #ask() {
    this.#view = await get(this.#path, {}, this.#signal);
    this.#show();
  }

  #show() {
    const { state, generation_id, protocol_name, members, coordinator, explanation, offsets } = this.#view;
    this.#state.replaceChildren(chip(state));
    this.#why.dataset.state = state;
    write(this.#why, explanation);
    const place = coordinator === null ? "no coordinator" : `at broker ${coordinator}`;
    const protocol = protocol_name ?? "no protocol";
    write(this.#facts, [`generation ${generation_id}`, protocol, count(members.length, "member"), place].join(" · "));
    showMembers(this.#members.body, this.#view, this.#moments, this.#path);
    showChanges(this.#changes.body, this.#moments);
    write(this.#memberCount, number(members.length));
    write(this.#offsetCount, number(offsets.length));
    this.#offsets.body.replaceChildren(...offsets.map(({ topic, partition, offset, metadata }) =>
      row(`${topic}-${partition}`, number(offset), metadata)));
  }
}

// Tables

function showMembers(body, { members, leader_id, state }, moments, path) {
  const names = shortNames(members.map(({ member_id }) => member_id));
  const joined = moments.at(-1)?.parked_joins ?? [];
  const make = (member) => memberRow(member, names.get(member.member_id), path);
  keyed(body, members, ({ member_id }) => member_id, make, (line, member) => {
    const { member_id, client_id, client_host, instance_id, is_expected } = member;
    const isMissing = state === "PreparingRebalance" && !is_expected && !joined.includes(member_id);
    line.classList.toggle("missing", isMissing);
    const marks = [member_id === leader_id && "leader", is_expected && "expected", isMissing && "has not rejoined"];
    write(find(".marks", line), marks.filter(Boolean).join(", "));
    const timeouts = [`${member.session_timeout_ms} ms`, `${member.rebalance_timeout_ms} ms`];
    const cells = [client_id, client_host.replace(/^\//, ""), instance_id ?? "", ...timeouts, assigned(member)];
    cells.forEach((words, at) => write(line.children[at + 1], words));
  });
}

/** What a member was assigned: partitions, if it is a consumer. */
function assigned({ assignment }) {
  if (!assignment) return "";
  return partitionsOf(assignment)?.join(", ") ?? `${Math.floor((assignment.length * 3) / 4)} bytes`;
}

function memberRow({ member_id, instance_id }, name, path) {
  const first = [h("span", { title: member_id, tabindex: 0, "data-row": true }, name), " ", h("b", { class: "marks" })];
  const buttons = [
    button("Evict", () => post(`${path}/evict`, { member: member_id }), "Remove it, as an administrator does"),
    button("Expire", () => post(`${path}/expire`, { member: member_id }), "Let its session run out now"),
  ];
  const fence = () => post(`${path}/fence`, { instance_id });
  if (instance_id !== null) buttons.push(button("Fence", fence, "Let another process take over its static id"));
  return row(first, "", "", "", "", "", "", h("span", { class: "buttons" }, buttons));
}

function showChanges(body, moments) {
  const names = shortNames(moments.flatMap(({ members, left }) => [...members, ...left]));
  // While a manual clock stands still the same may happen twice: lines that are equal are counted.
  const times = new Map();
  const lines = moments.slice(-TOLD).map((moment) => {
    const { states, cause, changes } = told(moment, names);
    const cells = [timeOfDay(moment.at_ms), moment.generation_id, states, cause, changes];
    const key = JSON.stringify(cells);
    times.set(key, (times.get(key) ?? 0) + 1);
    return { cells, key: key + times.get(key) };
  });
  keyed(body, lines.reverse(), ({ key }) => key, ({ cells }) => row(...cells));
}

// What can be done

function actions(groupId, path, signal) {
  const held = h("select", { "aria-label": "State to hold in" }, REBALANCING.map((state) => option(state)));
  const to = h("select", { "aria-label": "Move its coordinator to", onfocus: refill });
  function refill() {
    const chosen = to.value;
    to.replaceChildren(...places(null));
    if (chosen) to.value = chosen;
  }
  on("overview", () => to.options.length || refill(), signal);
  if (overview) refill();
  return div("bar actions",
    button("Force a rebalance", () => post(`${path}/force_rebalance`), "All members stay and are told to join again"),
    h("span", { class: "set" }, "Hold in ", held,
      button("Hold", () => post(`${path}/hold`, { state: held.value }), "It stays in this state until it is released"),
      button("Release", () => post(`${path}/release`), "Let it go on")),
    h("span", { class: "set" }, "Coordinator to ", to,
      button("Move", () => move({ group_id: groupId }, to.value), "With all groups of its offsets partition")));
}
