// The table of the members of a group. Its columns depend on the type of the group.

import { post } from "./api.js";
import { chip, find, h, partitionRanges, row, setPhrases, setText, table, timeOfDay, updateList } from "./dom.js";
import { button } from "./live.js";

const COLUMNS = {
  classic: ["Member", "Client", "Host", "Static id", "Session", "Rebalance", "Assigned", ""],
  consumer: ["Member", "Epoch", "State", "Has", "Has to give up", "Waits for", "Target", ""],
};
const MISSING = {
  JoinGroup: "has not rejoined",
  SyncGroup: "has not sent a SyncGroup",
  ConsumerGroupHeartbeat: "has not sent a heartbeat",
};
const AWAY = -2; // The epoch of a static member that has left for a while.

/** The members of the group with this path below the cluster's. */
export class Members {
  element = h("div");
  #path;
  #type;
  #table;

  constructor(path) {
    this.#path = path;
    this.#use("classic");
  }

  #use(type) {
    this.#type = type;
    this.#table = table(COLUMNS[type], `members ${type}`);
    this.element.replaceChildren(this.#table);
  }

  /** Show the members of a group. The table of a group that was removed keeps its columns. */
  show({ type, members, leader_id }, names) {
    if (type && type !== this.#type) this.#use(type);
    const update = this.#type === "consumer" ? consumerCells(members, names) : classicCells;
    updateList(this.#table.body, members, ({ member_id }) => member_id, (member) => this.#makeRow(member, names),
      (line, member) => {
        line.classList.toggle("missing", member.missing_request !== null);
        const { member_id, is_expected, is_held, member_epoch, missing_request } = member;
        const marks = [member_id === leader_id && "leader", is_expected && "expected", member_epoch === AWAY && "away"];
        const isRevoking = member.state === "UNREVOKED_PARTITIONS";
        const missing = isRevoking ? "has not given up partitions" : MISSING[missing_request];
        const states = [...marks, missing, is_held && "held"];
        setText(find(".marks", line), states.filter(Boolean).join(", "));
        for (const each of line.querySelectorAll("[data-held]")) each.hidden = each.dataset.held !== String(is_held);
        update(line, member);
      });
  }

  #makeRow(member, names) {
    const { member_id } = member;
    const name = h("span", { title: member_id, tabindex: 0, "data-row": true }, names.get(member_id) ?? member_id);
    const empty = COLUMNS[this.#type].slice(2).map(() => "");
    const buttons = h("span", { class: "buttons" }, this.#buttons(member));
    return row([name, " ", h("b", { class: "marks" }), h("small")], ...empty, buttons);
  }

  #buttons({ member_id, instance_id }) {
    const act = (label, command, body, title) => button(label, () => post(`${this.#path}/${command}`, body), title);
    const [member, held] = [{ member: member_id }, { state: "Reconciling", member: member_id }];
    const isConsumer = this.#type === "consumer";
    return [
      act("Evict", "evict", member, "Remove the member, like an admin client"),
      act("Expire", "expire", member, "Expire the session of the member now"),
      instance_id !== null && act("Fence", "fence_instance", { instance_id }, "Replace the static member, like another process"),
      isConsumer && act("Fence epoch", "fence_epoch", member, "Forget the epoch: the next heartbeat is fenced"),
      isConsumer && shownIfHeld(false, act("Hold", "hold", held, "Do not believe that it has given up partitions")),
      isConsumer && shownIfHeld(true, act("Release", "release", held, "End the hold of the member")),
    ];
  }
}

/** Mark a button that is hidden unless the member is held, or is not. */
function shownIfHeld(isHeld, element) {
  element.dataset.held = isHeld;
  return element;
}

const setCells = (line, cells) => cells.forEach((text, at) => setText(line.children[at + 1], text));

function classicCells(line, member) {
  const timeouts = [`${member.session_timeout_ms} ms`, `${member.rebalance_timeout_ms} ms`];
  const host = member.client_host.replace(/^\//, "");
  setCells(line, [member.client_id, host, member.instance_id ?? "", ...timeouts, assigned(member)]);
}

/** Return the assigned partitions, or the size of an assignment that is not a consumer's. */
function assigned({ assignment, assigned_partitions }) {
  if (!assignment) return "";
  return assigned_partitions?.join(", ") ?? `${Math.floor((assignment.length * 3) / 4)} bytes`;
}

function factsOf(member) {
  const { client_host, instance_id, rack_id, session_timeout_ms, rebalance_timeout_ms, type } = member;
  const facts = [
    type === "classic" && "classic protocol",
    client_host.replace(/^\//, ""),
    instance_id && `static ${instance_id}`,
    rack_id && `rack ${rack_id}`,
    member.subscribed_topic_regex && `topics ${member.subscribed_topic_regex}`,
    `session ${session_timeout_ms / 1000} s`,
    `rebalance ${rebalance_timeout_ms / 1000} s`,
  ];
  return facts.filter(Boolean);
}

/** Return the function that updates the cells of a member of a consumer group. */
function consumerCells(members, names) {
  // The partitions that have to be given up, with the time until which, are known from those that wait for them.
  const until = new Map(members.flatMap(({ awaited }) =>
    awaited.filter(({ is_revoked }) => is_revoked).map(({ holder_id, until_ms }) => [holder_id, until_ms])));
  return (line, member) => {
    setText(find("small", line), factsOf(member).join(" · "));
    const { member_id, member_epoch, state, pending_revocation, awaited, target } = member;
    const [, epoch, place, ...lists] = line.children;
    setText(epoch, member_epoch);
    if (place.title !== state) {
      place.title = state;
      place.replaceChildren(chip(state.replace("_PARTITIONS", "")));
    }
    const deadline = until.has(member_id) ? [`until ${timeOfDay(until.get(member_id)).slice(0, 8)}`] : [];
    const givesUp = pending_revocation.length ? [...partitionRanges(pending_revocation), ...deadline] : [];
    const has = partitionRanges(member.assigned_partitions ?? []);
    const phrases = [has, givesUp, waitsFor(awaited, names), partitionRanges(target)];
    phrases.forEach((each, at) => setPhrases(lists[at], each));
  };
}

/** Return the awaited partitions with the members that hold them. */
function waitsFor(awaited, names) {
  const byHolder = new Map();
  for (const { topic, partition, holder_id } of awaited)
    byHolder.set(holder_id, [...(byHolder.get(holder_id) ?? []), `${topic}-${partition}`]);
  const ofHolder = (holder) => (range) => `${range} of ${names.get(holder) ?? holder}`;
  return [...byHolder].flatMap(([holder, partitions]) => partitionRanges(partitions).map(ofHolder(holder)));
}
