// The entry point of the page: selects the view by the URL, handles keys, switches themes and updates times.

import { CLUSTER, getClusters } from "./api.js";
import * as brokers from "./brokers.js";
import * as clock from "./clock.js";
import { duration, find, h, setText, timeOfDay } from "./dom.js";
import * as faults from "./faults.js";
import * as group from "./group.js";
import * as groups from "./groups.js";
import { nowMs, showError, subscribe } from "./live.js";
import * as rebalancing from "./rebalancing.js";
import * as requests from "./requests.js";
import * as transaction from "./transaction.js";
import * as transactions from "./transactions.js";

const VIEWS = { groups, transactions, requests, faults, clock };
const DETAILS = { groups: group, transactions: transaction };
const KEYS = { g: "groups", x: "transactions", r: "requests", f: "faults", c: "clock" };
const THEMES = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };
const TICK_MS = 200;

// Views: #groups?state=Stable, #groups/my-group, #transactions/my-id, #requests?api=Fetch ...

let closing = new AbortController();

function route() {
  closing.abort();
  closing = new AbortController();
  const [path, query] = location.hash.slice(1).split("?");
  const slash = path.indexOf("/");
  const name = slash < 0 ? path : path.slice(0, slash);
  const detail = slash >= 0 ? DETAILS[name] : undefined;
  const view = detail ?? VIEWS[name] ?? groups;
  const argument = detail ? decodeURIComponent(path.slice(slash + 1)) : new URLSearchParams(query);
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash === `#${name in VIEWS ? name : "groups"}`;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  subscribe({ requests: view === requests, group: view === group ? argument : null });
  const root = h("div", { class: "view" });
  find("#view").replaceChildren(root);
  view.open(root, argument, closing.signal);
}

// Keys

function press(event) {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || find("dialog[open]")) return;
  if (key === "Escape") escape(target);
  else if (target.matches("input, select, textarea")) return;
  else if (KEYS[key]) location.hash = KEYS[key];
  else if (key === "/") find("#view [data-first]")?.focus();
  else if (key === "n") find("#now .rebalancing a")?.click();
  else if (key === "b") find('#brokers [tabindex="0"]')?.focus();
  else if (key === "j" || key === "k") moveFocus(key === "j" ? 1 : -1);
  else if (key === "p") find("#pause")?.click();
  else if (key === "t") find("#theme").click();
  else if (key === "?") find("#help").showModal();
  else return;
  event.preventDefault();
}

function escape(target) {
  if (target.matches("input, select, textarea")) target.blur();
  else if (location.hash.includes("/")) location.hash = location.hash.slice(1).split("/")[0];
}

/** Move the focus by rows of the view. */
function moveFocus(by) {
  const rows = [...document.querySelectorAll("#view [data-row]")];
  const at = rows.indexOf(document.activeElement);
  rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))]?.focus();
}

// Themes

function showTheme() {
  const theme = localStorage.getItem("theme") ?? "";
  document.documentElement.dataset.theme = theme;
  setText(find("#theme"), THEMES[theme]);
}

function nextTheme() {
  const names = Object.keys(THEMES);
  localStorage.setItem("theme", names[(names.indexOf(localStorage.getItem("theme") ?? "") + 1) % names.length]);
  showTheme();
}

// Times

function updateTimes() {
  const now_ms = nowMs();
  setText(find("#time"), timeOfDay(now_ms).slice(0, 8));
  for (const time of document.querySelectorAll("[data-since]"))
    setText(time, duration(now_ms - Number(time.dataset.since)));
}

async function listClusters() {
  const { clusters } = await getClusters();
  const select = find("#clusters");
  select.append(...clusters.map(({ name }) => h("option", { selected: name === CLUSTER }, name)));
  select.hidden = clusters.length < 2;
  select.addEventListener("change", () => (location.search = new URLSearchParams({ cluster: select.value })));
}

showTheme();
find("#theme").addEventListener("click", nextTheme);
find("#skip").addEventListener("click", () => find("#view").focus());
find("#keys").addEventListener("click", () => find("#help").showModal());
addEventListener("hashchange", route);
addEventListener("keydown", press);
setInterval(updateTimes, TICK_MS);
brokers.start();
rebalancing.start();
route();
listClusters().catch(showError);
