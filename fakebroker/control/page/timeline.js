// A group's life as a picture: a band for its state, a row for each member, in it the JoinGroup and SyncGroup requests
// that were parked from when they came until they were answered, and a line for each generation. Gets data, gives SVG.

import { duration, listed, s, shortNames, withNames } from "./dom.js";

const BAND_Y = 24;
const BAND = 22;
const ROW = 22;
const LABEL_PX = 56;
const LETTER_PX = 7;
const MAX_ROWS = 40;
const MAX_CHANGES = 40;
const MAX_NAMED = 8;

/** How much time is shown; "changes" is each change, with a long time taking not much more room than a short one. */
export const SCALES = [
  ["fitting", "the newest changes"], [10_000, "last 10 s"], [30_000, "last 30 s"], [60_000, "last minute"],
  [600_000, "last 10 minutes"], [3_600_000, "last hour"], ["changes", "each change, not to scale"],
];
const SPANS_MS = [10_000, 30_000, 60_000, 600_000, 3_600_000];
const FITTING = 12;

/** The shortest time that has the newest changes in it. */
function fitting(moments, now_ms) {
  const from_ms = moments.at(-FITTING)?.at_ms ?? moments[0]?.at_ms ?? now_ms;
  return SPANS_MS.find((span_ms) => now_ms - from_ms < span_ms) ?? "changes";
}

/** Only what befell the group at its coordinator: an old one, which does not know, may go on for a time. */
export function withoutZombies(moments) {
  let coordinator = null;
  return moments.filter((moment) => {
    if (coordinator === null || moment.state_from === "Dead") coordinator = moment.coordinator_id;
    return moment.coordinator_id === coordinator;
  });
}

/**
 * Draw it.
 *
 * @param svg The element to fill.
 * @param life `moments`, oldest first; `parked`: {member_id, api, from_ms, to_ms or null}, requests.
 * @param look `now_ms`, `scale` (of SCALES), `width` in px, and `cursor`: the moment that is looked at, or null.
 * @returns Where each moment is, [{moment, x}], of those that are to be seen.
 */
export function draw(svg, { moments, parked }, { now_ms, scale, width, cursor }) {
  const names = shortNames(moments.flatMap(({ members, left }) => [...members, ...left]));
  const shown = rowsOf(moments);
  const rows = shown.slice(0, MAX_ROWS);
  const hidden = shown.length - rows.length;
  const left = Math.min(220, 24 + LETTER_PX * Math.max(8, ...rows.map((id) => names.get(id).length)));
  const axis = axisOf(moments, now_ms, scale, left, width - 24);
  const rowY = (row) => BAND_Y + BAND + 10 + ROW * row;
  const bottom = rowY(rows.length);
  const height = bottom + 26 + (hidden ? 16 : 0);
  const rowOf = (id, row) => [...memberRow(id, rowY(row), { moments, parked, axis, name: names.get(id), left })];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.replaceChildren(
    ...ticks(axis, bottom), ...band(moments, axis, names), ...rows.flatMap(rowOf),
    ...generations(moments, axis, bottom),
    line("now", axis.x(now_ms), BAND_Y - 6, bottom));
  if (cursor?.at_ms >= axis.from_ms) svg.append(line("cursor", axis.x(cursor.at_ms), 4, bottom));
  if (hidden) svg.append(text(8, height - 4, `and ${hidden} more members`));
  return moments.filter(({ at_ms }) => at_ms >= axis.from_ms).map((moment) => ({ moment, x: axis.x(moment.at_ms) }));
}

// What is where

/** The members, those that are waited for first; behind them those that are gone, the last one first. */
function rowsOf(moments) {
  const { members, state_to, parked_joins } = moments.at(-1) ?? { members: [] };
  const waited = state_to === "PreparingRebalance" ? members.filter((id) => !parked_joins.includes(id)) : [];
  return [...new Set([...waited, ...members, ...moments.flatMap(({ left }) => left).reverse()])];
}

/** Times to places: `x`, from `from_ms` to `now_ms`, and the `ticks`. */
function axisOf(moments, now_ms, chosen, left, right) {
  const scale = chosen === "fitting" ? fitting(moments, now_ms) : chosen;
  if (scale === "changes") return axisOfChanges(moments.slice(-MAX_CHANGES), now_ms, left, right);
  const from_ms = now_ms - Number(scale);
  const x = (ms) => left + ((right - left) * Math.max(0, ms - from_ms)) / (now_ms - from_ms);
  return { from_ms, now_ms, x, ticks: linearTicks(now_ms, Number(scale)) };
}

function axisOfChanges(moments, now_ms, left, right) {
  const times = [...moments.map(({ at_ms }) => at_ms), Math.max(now_ms, moments.at(-1)?.at_ms ?? 0)];
  const edges = [0];
  for (let at = 1; at < times.length; at++) {
    edges.push(edges.at(-1) + 18 + 22 * Math.log10(1 + (times[at] - times[at - 1]) / 10));
  }
  const unit = (right - left) / Math.max(edges.at(-1), 300);
  const x = (ms) => {
    const at = times.findLastIndex((time) => time <= ms);
    if (at < 0) return left;
    const part = at + 1 < times.length ? (ms - times[at]) / (times[at + 1] - times[at]) : 0;
    return left + unit * (edges[at] + (part && part * (edges[at + 1] - edges[at])));
  };
  const ticks = times.slice(0, -1).map((ms) => ({ ms, label: `-${duration(now_ms - ms)}` }));
  return { from_ms: times[0], now_ms, x, ticks };
}

function linearTicks(now_ms, span_ms) {
  return [1, 0.8, 0.6, 0.4, 0.2].map((part) => ({ ms: now_ms - part * span_ms, label: `-${shortly(part * span_ms)}` }));
}

const shortly = (ms) => (ms < 60_000 ? `${ms / 1000} s` : `${ms / 60_000} min`);

// Shapes

function* ticks(axis, bottom) {
  let last = -Infinity;
  const end = axis.x(axis.now_ms);
  for (const { ms, label } of axis.ticks) {
    const x = axis.x(ms);
    if (x - last < LABEL_PX || end - x < LABEL_PX) continue;
    last = x;
    yield line("tick", x, BAND_Y, bottom);
    yield text(x, bottom + 15, label, "middle");
  }
  yield text(end, bottom + 15, "now", "end");
}

/** The spans of time in which something stayed the same: [from, to, value], those that are to be seen. */
function spans(moments, axis, valueOf) {
  const found = [];
  moments.forEach((moment, at) => {
    const value = valueOf(moment);
    const to_ms = moments[at + 1]?.at_ms ?? axis.now_ms;
    if (value !== null && to_ms >= axis.from_ms) {
      const last = found.at(-1);
      if (last && last.value === value && last.to_ms === moment.at_ms) last.to_ms = to_ms;
      else found.push({ from_ms: moment.at_ms, to_ms, value, moment });
    }
  });
  return found;
}

function* band(moments, axis, names) {
  for (const { from_ms, to_ms, value, moment } of spans(moments, axis, ({ state_to }) => state_to)) {
    const x = axis.x(from_ms);
    const width = Math.max(1.5, axis.x(to_ms) - x);
    yield titled(
      rect(`state ${value}`, x, BAND_Y, width, BAND),
      `${value} for ${duration(to_ms - from_ms)}: ${withNames(moment.cause, names)}`,
    );
    const label = [value, value.replace("Rebalance", "")].find((each) => each.length * LETTER_PX + 8 < width);
    if (label) yield text(x + 5, BAND_Y + 15, label, "start", "on");
  }
}

function* memberRow(id, y, { moments, parked, axis, name, left }) {
  const room = Math.floor((left - 20) / LETTER_PX);
  yield titled(text(8, y + 12, name.length > room ? `${name.slice(0, room - 1)}…` : name, "start", "name"), id);
  for (const { from_ms, to_ms, value } of spans(moments, axis, (moment) => roleOf(id, moment))) {
    const x = axis.x(from_ms);
    const width = Math.max(1.5, axis.x(to_ms) - x);
    yield titled(
      rect(`member ${value}`, x, y + 1, width, 9),
      `${name}: ${ROLES[value]} for ${duration(to_ms - from_ms)}`,
    );
    if (value === "missing" && to_ms === axis.now_ms && width > 130)
      yield text(x + 5, y + 19, "has not rejoined", "start", "bad");
  }
  for (const { member_id, api, from_ms, to_ms } of parked) {
    const end_ms = to_ms ?? axis.now_ms;
    if (member_id !== id || end_ms < axis.from_ms) continue;
    const x = axis.x(from_ms);
    const waited = `${api} ${to_ms === null ? "has waited for" : "was answered after"} ${duration(end_ms - from_ms)}`;
    yield titled(
      rect(`parked ${api}${to_ms === null ? " open" : ""}`, x, y + 12, Math.max(2, axis.x(end_ms) - x), 6),
      `${name}: ${waited}`,
    );
  }
}

const ROLES = { leader: "leads", follower: "is a member", missing: "has not rejoined", joined: "has joined the round" };

function roleOf(id, { members, leader_id, state_to, parked_joins }) {
  if (!members.includes(id)) return null;
  if (state_to === "PreparingRebalance") return parked_joins.includes(id) ? "joined" : "missing";
  return id === leader_id ? "leader" : "follower";
}

/** A line where each generation begins; the newest have their numbers written, as far as there is room. */
function* generations(moments, axis, bottom) {
  const begins = moments.filter(({ generation_id }, at) => generation_id !== moments[at - 1]?.generation_id);
  let last = Infinity;
  for (const { generation_id, at_ms } of begins.reverse()) {
    if (at_ms < axis.from_ms) return;
    const x = axis.x(at_ms);
    yield line("generation", x, BAND_Y - 4, bottom);
    if (!generation_id || last - x < LABEL_PX) continue;
    last = x;
    yield text(x, BAND_Y - 9, `gen ${generation_id}`, "middle");
  }
}

const rect = (kind, x, y, width, height) =>
  s("rect", { class: kind, x: x.toFixed(1), y, width: width.toFixed(1), height, rx: 2 });
const line = (kind, x, y1, y2) => s("line", { class: kind, x1: x.toFixed(1), x2: x.toFixed(1), y1, y2 });
const text = (x, y, words, anchor = "start", kind = "") =>
  s("text", { x: x.toFixed(1), y, "text-anchor": anchor, class: kind }, words);

function titled(shape, words) {
  shape.append(s("title", {}, words));
  return shape;
}

/** What a moment was, in words. */
export function told({ state_from, state_to, cause, joined, rejoined, left }, names) {
  const changes = Object.entries({ joined, rejoined, gone: left }).filter(([, ids]) => ids.length);
  const inWords = ([what, ids]) => `${what}: ${listed(ids.map((id) => names.get(id) ?? id), MAX_NAMED)}`;
  return {
    states: state_from === state_to ? state_to : `${state_from} → ${state_to}`,
    cause: withNames(cause, names),
    changes: changes.map(inWords).join("; "),
  };
}
