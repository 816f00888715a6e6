// The timeline of a group or a transactional id: the server's SVG with a cursor that selects a change by arrow keys or pointer.

import { duration, h, s, setText } from "./dom.js";
import { nowMs } from "./live.js";
import { describe, withoutZombies } from "./moments.js";

const SHOWN = 100;
const MAX_ROWS = 40;
const MIN_WIDTH = 280;

export class Timeline {
  #svg = s("svg", {});
  #cursorLine = s("line", { class: "cursor", y1: 28 });
  #readout = h("p", { class: "readout", "aria-live": "polite" });
  #frame = h("div", { class: "picture", tabindex: 0, role: "group", "data-first": true,
    "aria-label": "Timeline: arrow keys select a change" }, this.#svg);
  #positions = [];
  #selected = null;
  #names = new Map();
  #number;

  /** `number` is what moments are numbered by: "generation", or "epoch" for a transactional id. */
  constructor(number = "generation") {
    this.#number = number;
    this.element = h("section", { "aria-label": "Timeline" }, this.#frame, this.#readout);
    this.#frame.addEventListener("keydown", (event) => this.#selectByKey(event));
    this.#frame.addEventListener("pointermove", (event) => this.#selectByPointer(event));
  }

  /** The query of the request for a timeline that fits the page. */
  get query() {
    return { limit: SHOWN, svg: true, max_rows: MAX_ROWS, width: Math.max(MIN_WIDTH, this.#frame.clientWidth) };
  }

  /** Show the timeline of a response. The selected change stays selected. */
  show({ moments, svg, names = {} }) {
    this.#names = new Map(Object.entries(names));
    if (svg === null) return;
    // The style sheets of the page have both themes; its content security policy forbids inline styles.
    const text = svg.replace(/<style>.*?<\/style>/s, "");
    const drawn = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    const xs = drawn.dataset.x.split(" ").map(Number);
    this.#positions = withoutZombies(moments).map((moment, at) => ({ moment, x: xs[at] }));
    this.#svg.replaceWith(drawn);
    this.#svg = drawn;
    this.#drawCursor();
  }

  #drawCursor() {
    const position = this.#selected && this.#positions.find(({ moment }) => isSame(moment, this.#selected));
    if (!position) return this.#cursorLine.remove();
    const { x } = position;
    for (const [name, value] of Object.entries({ x1: x, x2: x, y2: this.#svg.getAttribute("height") - 40 })) {
      this.#cursorLine.setAttribute(name, value);
    }
    this.#svg.append(this.#cursorLine);
  }

  #selectByKey(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.#positions.length) return;
    event.preventDefault();
    const last = this.#positions.length - 1;
    const at = this.#positions.findIndex(({ moment }) => isSame(moment, this.#selected));
    this.#select(this.#positions[at < 0 ? last : Math.min(last, Math.max(0, at + step))].moment);
  }

  #selectByPointer({ clientX }) {
    const x = clientX - this.#svg.getBoundingClientRect().left;
    const distance = (position) => Math.abs(position.x - x);
    const [nearest] = [...this.#positions].sort((one, other) => distance(one) - distance(other));
    if (nearest && !isSame(nearest.moment, this.#selected)) this.#select(nearest.moment);
  }

  #select(moment) {
    this.#selected = moment;
    this.#drawCursor();
    const { states, cause, changes } = describe(moment, this.#names);
    const isConsumerGroup = (moment.assignment_epoch ?? null) !== null;
    const number = isConsumerGroup ? "epoch" : this.#number;
    const head = `${duration(nowMs() - moment.at_ms)} ago: ${states}, ${number} ${moment.generation_id}`;
    setText(this.#readout, [head, cause, changes].filter(Boolean).join(" — "));
  }
}

/** Compare moments from different responses. */
const isSame = (one, other) => JSON.stringify(one) === JSON.stringify(other);
