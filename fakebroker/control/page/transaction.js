// The view of one transactional id: explanation of its state, timeline, missing markers and changes, and its commands.

import { get, post, transactionPath } from "./api.js";
import { destination, targetOptions } from "./brokers.js";
import { chip, count, div, h, option, row, setText, table, timeOfDay } from "./dom.js";
import { button, on, overview, throttled } from "./live.js";
import { asMoments, describe } from "./moments.js";
import { Timeline } from "./timeline.js";

const INTERVAL_MS = 500;
const SHOWN_CHANGES = 60;
const HOLDABLE = ["PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Ongoing", "Empty", "Dead"];

export function open(root, transactionalId, signal) {
  const path = transactionPath(transactionalId);
  const timeline = new Timeline("epoch");
  const state = h("span");
  const facts = h("span", { class: "facts" });
  const why = h("p", { class: "explanation" });
  const markers = table(["Partition", "No marker yet"]);
  const markersPart = h("section", { hidden: true }, h("h3", {}, "Missing markers"), markers);
  const changes = table(["Time", "Epoch", "State", "Cause", "Partitions"]);
  root.append(
    div("bar", h("a", { href: "#transactions" }, "‹ All transactional ids"), h("h2", { class: "id" }, transactionalId),
      state, facts),
    why, timeline.element, commands(path, signal), markersPart, h("h3", {}, "Changes"), changes);

  const load = throttled(async () => {
    setText(why, await get(`${path}/explain`, {}, signal));
    const drawn = await orNull(get(`${path}/timeline`, timeline.query, signal));
    if (!drawn) return;
    const moments = asMoments(drawn.moments);
    timeline.show({ moments, svg: drawn.svg });
    showChanges(changes.body, moments);
    const detail = await orNull(get(path, {}, signal));
    show(detail?.transaction ?? { state: moments.at(-1)?.state_to ?? "Dead", awaited_markers: [], partitions: [] });
  }, INTERVAL_MS, signal);

  function show(transaction) {
    state.replaceChildren(chip(transaction.state));
    why.dataset.state = transaction.state;
    markersPart.hidden = transaction.awaited_markers.length === 0;
    markers.body.replaceChildren(...transaction.awaited_markers.map(({ partition, reason }) => row(partition, reason)));
    const known = transaction.producer_id === undefined ? [] : [
      `producer ${transaction.producer_id} in epoch ${transaction.producer_epoch}`,
      count(transaction.partitions.length, "partition"), `coordinator: broker ${transaction.coordinator}`];
    setText(facts, known.join(" · "));
  }
  on("overview", load, signal);
  on("opened", load, signal);
  window.addEventListener("resize", load, { signal });
  load();
}

/** Return the result of a request; null if the id does not exist. */
const orNull = (request) => request.catch((error) => {
  if (error.status !== 404) throw error;
  return null;
});

function showChanges(body, moments) {
  const lines = moments.slice(-SHOWN_CHANGES).map((moment) => {
    const { states, cause, changes } = describe(moment, new Map());
    return row(timeOfDay(moment.at_ms), moment.generation_id, states, cause, changes);
  });
  body.replaceChildren(...lines.reverse());
}

function commands(path, signal) {
  const held = h("select", { "aria-label": "State to hold before" }, HOLDABLE.map((state) => option(state)));
  const to = h("select", { "aria-label": "Move coordinator to", onfocus: refill });
  function refill() {
    const chosen = to.value;
    to.replaceChildren(...targetOptions(null));
    if (chosen) to.value = chosen;
  }
  on("overview", () => to.options.length || refill(), signal);
  if (overview) refill();
  const move = () => post(`${path}/move_coordinator`, destination(to.value));
  return div("bar actions",
    button("Abort", () => post(`${path}/abort`), "Abort the open transaction, as its timeout does"),
    button("Fence", () => post(`${path}/fence_producer`), "Raise the epoch, as Admin.fenceProducers does"),
    h("span", { class: "set" }, "Hold before ", held,
      button("Hold", () => post(`${path}/hold`, { state: held.value }), "Do not store this state until released"),
      button("Release", () => post(`${path}/release`), "End the holds")),
    h("span", { class: "set" }, "Markers ",
      button("Hold markers", () => post(`${path}/hold_markers`), "Do not write markers until released"),
      button("Release markers", () => post(`${path}/release_markers`), "Write the markers")),
    h("span", { class: "set" }, "Move coordinator to ", to,
      button("Move", move, "Moves the whole partition of __transaction_state")));
}
