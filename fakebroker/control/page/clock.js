// The view of the brokers' clock: its kind, buttons that advance a manual clock, and pending deadlines.

import { get, post } from "./api.js";
import { duration, h, row, setText, table, timeOfDay } from "./dom.js";
import { button, on, throttled } from "./live.js";
import { displayId, linkTo } from "./rebalancing.js";

const SHOWN = 100;
const INTERVAL_MS = 1000;
const STEPS_S = [0.1, 1, 5, 30];
const DESCRIPTIONS = {
  real: "Brokers use real time.",
  scaled: "Brokers use scaled time: it runs faster or slower than real time.",
  manual: "Brokers use a manual clock: their time stops until it is advanced. Clients use real time.",
};

export function open(root, query, signal) {
  const description = h("p", {});
  const range = { type: "number", min: 0, step: "any", value: 10 };
  const seconds = h("input", { ...range, "aria-label": "Seconds", "data-first": true });
  const pending = table(["In", "At", "What happens", "Group", "Broker"]);
  const total = h("small");
  const load = throttled(async () => {
    const [clock, deadlines] = await Promise.all([get("/clock", {}, signal), get("/deadlines", { limit: SHOWN }, signal)]);
    setText(description, DESCRIPTIONS[clock.kind]);
    manual.hidden = clock.kind !== "manual";
    setText(total, deadlines.length === SHOWN ? `the first ${SHOWN}` : "");
    pending.body.replaceChildren(...deadlines.map(rowOf));
  }, INTERVAL_MS, signal);
  const advance = (label, work) => button(label, () => work().then(load));
  const by = (by_s) => post("/advance", { seconds: by_s });
  const manual = h("div", { class: "bar", hidden: true },
    STEPS_S.map((step_s) => advance(`+${step_s} s`, () => by(step_s))),
    h("span", { class: "set" }, seconds, advance("Advance by seconds", () => by(Number(seconds.value)))),
    advance("Advance to next deadline", () => post("/advance_to_next_deadline")));
  root.append(h("h2", {}, "Clock"), description, manual, h("h3", {}, "Pending deadlines ", total), pending);
  on("overview", load, signal);
  load();
}

function rowOf({ in_s, at_ms, node_id, group_id, text }) {
  const group = group_id === null ? "" : h("a", { href: linkTo(group_id), "data-row": true }, displayId(group_id));
  return row(duration(in_s * 1000), timeOfDay(at_ms), text, group, node_id ?? "");
}
