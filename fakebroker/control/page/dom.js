// Elements from data, and words for numbers. Text becomes text nodes and nothing else: whatever a client calls itself
// is never read as HTML. Knows nothing of clusters.

const SVG = "http://www.w3.org/2000/svg";

/** An element: attributes by name, listeners as `onclick` and so on; null and false leave an attribute out. */
export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

/** The same for SVG. */
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

/** Sets the text if it differs, so that nothing is selected or announced anew. */
export function write(element, text) {
  if (element.textContent !== String(text)) element.textContent = text;
}

/** Makes the children show the items, one each: elements stay as long as their items, so focus does, too. */
export function keyed(parent, items, keyOf, make, update) {
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

/** A table in a frame that scrolls; its `body` is what to fill. */
export function table(names, kind = "") {
  const body = h("tbody");
  const head = h("thead", {}, h("tr", {}, names.map((name) => h("th", {}, name))));
  return Object.assign(h("div", { class: "scroll" }, h("table", { class: kind }, head, body)), { body });
}

export const div = (kind, ...children) => h("div", { class: kind }, children);

export const option = (value, label = value) => h("option", { value }, label);

/** A row of a table. */
export const row = (...cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)));

// Words

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const number = (value) => whole.format(value ?? 0);

export const count = (value, what) => `${number(value)} ${what}${value === 1 ? "" : "s"}`;

/** A rate: small ones with a digit after the point. */
export const rate = (value) => (value > 0 && value < 9.95 ? value.toFixed(1) : number(value));

/** Some names, and how many more there are. */
export function listed(names, most) {
  const more = names.length - most;
  return names.slice(0, most).join(", ") + (more > 0 ? ` and ${number(more)} more` : "");
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

/** The time of day in UTC, to the millisecond. */
export const timeOfDay = (ms) => new Date(ms).toISOString().slice(11, 23);

const UUID = /-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/** A short name for each member id: what stands before its UUID, and only so much of that as tells them apart. */
export function shortNames(ids) {
  const all = [...new Set(ids)];
  let names = new Map();
  for (const length of [0, 5, 9, 37]) {
    names = new Map(all.map((id) => [id, short(id, length)]));
    if (new Set(names.values()).size === all.length) break;
  }
  return names;
}

function short(id, length) {
  const found = UUID.exec(id);
  return found ? id.slice(0, found.index + length) : id;
}

/** A text with names in place of member ids. */
export function withNames(text, names) {
  let named = text;
  for (const [id, name] of names) if (id) named = named.replaceAll(id, name);
  return named;
}

// States of groups

export const REBALANCING = ["PreparingRebalance", "CompletingRebalance"];

export const chip = (state) => h("span", { class: "chip", "data-state": state }, state);

/** How long ago something was, kept up to date by `page.js`. */
export const since = (ms) => h("time", { "data-since": ms });
