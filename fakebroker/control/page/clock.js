// The brokers' clock: what it is, letting a manual one go on, and what time alone will bring about.

import { get, post } from "./api.js";
import { h, listed, row, shortNames, table, timeOfDay, write } from "./dom.js";
import { button, calmly, on } from "./live.js";
import { linkTo, shown } from "./now.js";

const SHOWN = 100;
const SHOWN_NAMES = 5;
const REST_MS = 1000;
const STEPS_S = [0.1, 1, 5, 30];
const WORDS = {
  real: "The brokers' time is real time.",
  scaled: "The brokers' time runs at another pace than real time.",
  manual: "The brokers' time stands still until it is let go on. Clients' time is real.",
};

export function open(root, query, signal) {
  const words = h("p", {});
  const range = { type: "number", min: 0, step: "any", value: 10 };
  const seconds = h("input", { ...range, "aria-label": "Seconds", "data-first": true });
  const due = table(["In", "At", "What", "Group", "Whom", "Broker"]);
  const total = h("small");
  const load = calmly(async () => {
    const [clock, { deadlines }] = await Promise.all([get("/clock", {}, signal), get("/deadlines", {}, signal)]);
    write(words, WORDS[clock.kind]);
    manual.hidden = clock.kind !== "manual";
    write(total, deadlines.length > SHOWN ? `the first ${SHOWN} of ${deadlines.length}` : "");
    due.body.replaceChildren(...deadlines.slice(0, SHOWN).map(rowOf));
  }, REST_MS, signal);
  const advance = (label, work) => button(label, () => work().then(load));
  const by = (by_s) => post("/clock/advance", { seconds: by_s });
  const manual = h("div", { class: "bar", hidden: true },
    STEPS_S.map((step_s) => advance(`+${step_s} s`, () => by(step_s))),
    h("span", { class: "set" }, seconds, advance("Advance by seconds", () => by(Number(seconds.value)))),
    advance("To the next deadline", () => post("/clock/advance_to_next_deadline")));
  root.append(h("h2", {}, "Clock"), words, manual, h("h3", {}, "What is due ", total), due);
  on("overview", load, signal);
  load();
}

function rowOf({ in_s, at_ms, kind, node_id, group_id, member_ids, partition }) {
  const names = [...shortNames(member_ids).values()];
  const place = partition === null ? "" : ` of __consumer_offsets-${partition}`;
  const group = group_id === null ? "" : h("a", { href: linkTo(group_id), "data-row": true }, shown(group_id));
  const what = kind.replaceAll("_", " ") + place;
  return row(`${in_s.toFixed(1)} s`, timeOfDay(at_ms), what, group, listed(names, SHOWN_NAMES), node_id ?? "");
}
