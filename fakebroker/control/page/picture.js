// The timeline of a group as a thing to look at: how much time it shows, and one change after the other by key or
// pointer. What it looks like is `timeline.js`'s.

import { div, duration, h, option, s, shortNames, write } from "./dom.js";
import { nowMs } from "./live.js";
import { draw, SCALES, told } from "./timeline.js";

const LEGEND = {
  leader: "leader", follower: "member", joined: "has joined the round", missing: "has not rejoined",
  JoinGroup: "JoinGroup waits", SyncGroup: "SyncGroup waits",
};

export class Picture {
  #svg = s("svg", {});
  #scale = h("select", { "aria-label": "Time shown", "data-first": true },
    SCALES.map(([value, label]) => option(value, label)));
  #readout = h("p", { class: "readout", "aria-live": "polite" });
  #frame = h("div", { class: "picture", tabindex: 0, role: "group",
    "aria-label": "Timeline: the arrow keys go from change to change" }, this.#svg);
  #places = [];
  #cursor = null;
  #moments = [];
  #parked = [];

  constructor() {
    const legend = Object.entries(LEGEND).map(([kind, words]) => h("span", {}, h("i", { class: kind }), words));
    const below = [this.#readout, div("legend", legend, this.#scale)];
    this.element = h("section", { "aria-label": "Timeline" }, this.#frame, below);
    this.#frame.addEventListener("keydown", (event) => this.#step(event));
    this.#frame.addEventListener("pointermove", (event) => this.#point(event));
  }

  /** Show this from now on. */
  take(moments, parked) {
    [this.#moments, this.#parked] = [moments, parked];
  }

  /** Draw it as it is now. */
  draw() {
    const width = this.#frame.clientWidth;
    const look = { now_ms: nowMs(), scale: this.#scale.value, width, cursor: this.#cursor };
    if (width) this.#places = draw(this.#svg, { moments: this.#moments, parked: this.#parked }, look);
  }

  #step(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.#places.length) return;
    event.preventDefault();
    const last = this.#places.length - 1;
    const at = this.#places.findIndex(({ moment }) => moment === this.#cursor);
    this.#tell(this.#places[at < 0 ? last : Math.min(last, Math.max(0, at + step))].moment);
  }

  #point({ clientX }) {
    const x = clientX - this.#svg.getBoundingClientRect().left;
    const distance = (place) => Math.abs(place.x - x);
    const [nearest] = [...this.#places].sort((one, other) => distance(one) - distance(other));
    if (nearest && nearest.moment !== this.#cursor) this.#tell(nearest.moment);
  }

  #tell(moment) {
    this.#cursor = moment;
    const { states, cause, changes } = told(moment, shortNames([...moment.members, ...moment.left]));
    const head = `${duration(nowMs() - moment.at_ms)} ago: ${states}, generation ${moment.generation_id}`;
    write(this.#readout, [head, cause, changes].filter(Boolean).join(" — "));
  }
}
