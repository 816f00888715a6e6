// Builds elements from data and formats numbers, times and names. Strings become text nodes, so names from clients are
// never parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element (hyperscript). Attributes "onclick" etc. add listeners; null and false omit an attribute. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** Create an SVG element, like `h`. */
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

export const find = (selector, root = document) => root.querySelector(selector);

/** Set the text of an element if it differs, so that selections stay and screen readers do not repeat it. */
export function setText(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

/** Set the text of an element to phrases without line breaks in them, separated by commas. */
export function setPhrases(element, phrases) {
  if (element.textContent === phrases.join(", ")) return;
  const parts = phrases.flatMap((phrase) => [", ", h("span", { class: "phrase" }, phrase)]);
  element.replaceChildren(...parts.slice(1));
}

/**
 * Update a list: one child per item, in the order of the items. Children are reused by key, so they keep the focus.
 * `make(item)` creates a child, `update(child, item)` is called for new and old ones.
 */
export function updateList(parent, items, keyOf, make, update) {
  const keys = new Set(items.map((item) => String(keyOf(item))));
  const old = new Map();
  for (const child of [...parent.children]) {
    if (keys.has(child.dataset.key)) old.set(child.dataset.key, child);
    else child.remove();
  }
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    const element = old.get(key) ?? make(item);
    element.dataset.key = key;
    update?.(element, item);
    if (element === at) at = at.nextElementSibling;
    else if (element.isConnected && parent.moveBefore) parent.moveBefore(element, at);
    else parent.insertBefore(element, at);
  }
}

/** Create a table in a scrollable element; its property `body` is the empty tbody. */
export function table(names, className = "") {
  const body = h("tbody");
  const head = h("thead", {}, h("tr", {}, names.map((name) => h("th", {}, name))));
  return Object.assign(h("div", { class: "scroll" }, h("table", { class: className }, head, body)), { body });
}

export const div = (className, ...children) => h("div", { class: className }, children);

export const option = (value, label = value) => h("option", { value }, label);

/** Create a table row from the contents of its cells. */
export const row = (...cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)));

// Formats

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const number = (value) => whole.format(value ?? 0);

export const count = (value, what) => `${number(value)} ${what}${value === 1 ? "" : "s"}`;

/** Format a rate: below 10 with one decimal. */
export const rate = (value) => (value > 0 && value < 9.95 ? value.toFixed(1) : number(value));

/** Join at most `limit` names, followed by the number of omitted ones. */
export function joinNames(names, limit) {
  const more = names.length - limit;
  return names.slice(0, limit).join(", ") + (more > 0 ? ` and ${number(more)} more` : "");
}

/** Return sorted partitions such as "orders-0" in short form: "orders-0..3", "orders-5". */
export function partitionRanges(partitions) {
  const ranges = [];
  for (const partition of partitions) {
    const dash = partition.lastIndexOf("-");
    const [topic, index] = [partition.slice(0, dash), Number(partition.slice(dash + 1))];
    const last = ranges.at(-1);
    if (last?.topic === topic && last.to + 1 === index) last.to = index;
    else ranges.push({ topic, from: index, to: index });
  }
  return ranges.map(({ topic, from, to }) => `${topic}-${from}${to > from ? `..${to}` : ""}`);
}

export function duration(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** Format milliseconds since the epoch as the time of day in UTC, with milliseconds. */
export const timeOfDay = (ms) => new Date(ms).toISOString().slice(11, 23);

/** Replace member ids in a text by their short names. */
export function withNames(text, names) {
  let named = text;
  for (const [id, name] of names) if (id) named = named.replaceAll(id, name);
  return named;
}

// States of groups

/** States in which partitions are being assigned or moved, by the type of the group. */
export const REBALANCING_OF = {
  classic: ["PreparingRebalance", "CompletingRebalance"],
  consumer: ["Assigning", "Reconciling"],
};

export const REBALANCING = Object.values(REBALANCING_OF).flat();

export const chip = (state) => h("span", { class: "chip", "data-state": state }, state);

/** The time passed since `ms`; `page.js` updates it. */
export const since = (ms) => h("time", { "data-since": ms });
