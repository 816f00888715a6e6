// The timeline of a group as the server draws it, and one change after the other by key or pointer.

import { duration, h, s, shortNames, write } from "./dom.js";
import { nowMs } from "./live.js";
import { told, withoutZombies } from "./moments.js";

const SHOWN = 100;
const MAX_ROWS = 40;

export class Picture {
  #svg = s("svg", {});
  #cursorLine = s("line", { class: "cursor", y1: 28 });
  #readout = h("p", { class: "readout", "aria-live": "polite" });
  #frame = h("div", { class: "picture", tabindex: 0, role: "group", "data-first": true,
    "aria-label": "Timeline: the arrow keys go from change to change" }, this.#svg);
  #places = [];
  #cursor = null;

  constructor() {
    this.element = h("section", { "aria-label": "Timeline" }, this.#frame, this.#readout);
    this.#frame.addEventListener("keydown", (event) => this.#step(event));
    this.#frame.addEventListener("pointermove", (event) => this.#point(event));
  }

  /** What to ask the server for. */
  get query() {
    return { limit: SHOWN, svg: true, max_rows: MAX_ROWS, width: Math.max(400, this.#frame.clientWidth) };
  }

  /** Show this from now on. */
  take({ moments, svg }) {
    if (svg === null) return;
    // The page has styles of its own, for both themes, and its policy allows no others.
    const text = svg.replace(/<style>.*?<\/style>/s, "");
    const drawn = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    const xs = drawn.dataset.x.split(" ").map(Number);
    this.#places = withoutZombies(moments).map((moment, at) => ({ moment, x: xs[at] }));
    this.#svg.replaceWith(drawn);
    this.#svg = drawn;
    this.#mark();
  }

  #mark() {
    const place = this.#cursor && this.#places.find(({ moment }) => isSame(moment, this.#cursor));
    if (!place) return this.#cursorLine.remove();
    for (const [name, value] of Object.entries({ x1: place.x, x2: place.x, y2: this.#svg.getAttribute("height") - 40 })) {
      this.#cursorLine.setAttribute(name, value);
    }
    this.#svg.append(this.#cursorLine);
  }

  #step(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.#places.length) return;
    event.preventDefault();
    const last = this.#places.length - 1;
    const at = this.#places.findIndex(({ moment }) => isSame(moment, this.#cursor));
    this.#tell(this.#places[at < 0 ? last : Math.min(last, Math.max(0, at + step))].moment);
  }

  #point({ clientX }) {
    const x = clientX - this.#svg.getBoundingClientRect().left;
    const distance = (place) => Math.abs(place.x - x);
    const [nearest] = [...this.#places].sort((one, other) => distance(one) - distance(other));
    if (nearest && !isSame(nearest.moment, this.#cursor)) this.#tell(nearest.moment);
  }

  #tell(moment) {
    this.#cursor = moment;
    this.#mark();
    const { states, cause, changes } = told(moment, shortNames([...moment.members, ...moment.left]));
    const head = `${duration(nowMs() - moment.at_ms)} ago: ${states}, generation ${moment.generation_id}`;
    write(this.#readout, [head, cause, changes].filter(Boolean).join(" — "));
  }
}

/** Whether two are the same moment, though they came with different answers. */
const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);
