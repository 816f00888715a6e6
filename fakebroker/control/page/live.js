// What is going on, as it happens: one event stream for the whole page, opened anew when it breaks or when a view wants
// something else, while the page can be seen. Views listen with `on`. Also the brokers' time, and telling people of what
// failed.

import { Problem, readStream } from "./api.js";
import { find, h } from "./dom.js";

const bus = new EventTarget();
const LONGEST_WAIT_MS = 5000;
const TOAST_MS = 8000;

let wish = { requests: false, group: null };
let controller = null;

/** The newest overview; null until there is one. */
export let overview = null;

/** Listen to "overview", "groups", "requests", "timeline" or "opened": then look at all anew. `signal` ends it. */
export const on = (name, listener, signal) => bus.addEventListener(name, ({ detail }) => listener(detail), { signal });

/** Say what else is wanted of the stream: `requests`, and the timeline of a `group`. */
export function want(change) {
  const next = { ...wish, ...change };
  if (controller && next.requests === wish.requests && next.group === wish.group) return;
  wish = next;
  reopen();
}

/** A browser has six connections for all tabs of a server: those that nobody sees take none. */
function reopen() {
  controller?.abort();
  controller = new AbortController();
  if (!document.hidden) follow(controller.signal);
}

document.addEventListener("visibilitychange", reopen);

async function follow(signal) {
  for (let wait_ms = 500; !signal.aborted; wait_ms = Math.min(2 * wait_ms, LONGEST_WAIT_MS)) {
    const kinds = wish.requests ? "overview,groups,requests" : "overview,groups";
    try {
      await readStream({ kinds, group: wish.group }, signal, (name, detail) => {
        wait_ms = 250;
        take(name, detail);
      });
      status("lost", "The stream ended. Opening it again.");
    } catch (error) {
      const what = error instanceof Problem ? error.message : "The stream broke off.";
      if (!signal.aborted) status("lost", `${what} Trying again.`);
    }
    if (!signal.aborted) await pause(wait_ms);
  }
}

function take(name, detail) {
  if (name === "opened") status("live", "Live");
  if (name === "overview") {
    overview = detail;
    setTime(detail.clock);
  }
  bus.dispatchEvent(new CustomEvent(name, { detail }));
}

function status(kind, text) {
  const element = find("#status");
  if (element.textContent === text) return;
  element.dataset.kind = kind;
  element.textContent = text;
}

// The brokers' time

let time = null;

/** The brokers' time runs on between two overviews, as fast as it has run so far; a manual clock stands still. */
function setTime({ now_ms, kind }) {
  const at_ms = performance.now();
  const passed_ms = time ? at_ms - time.at_ms : 0;
  const measured = passed_ms > 500 ? (now_ms - time.now_ms) / passed_ms : (time?.pace ?? 1);
  time = { now_ms, at_ms, kind, pace: { manual: 0, real: 1 }[kind] ?? measured };
}

/** What time it is for the brokers, about: milliseconds since the epoch. */
export const nowMs = () => (time ? time.now_ms + (performance.now() - time.at_ms) * time.pace : Date.now());

// Work

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A function that does the work at once, and when it is called meanwhile once more, `rest_ms` after it was done. */
export function calmly(work, rest_ms, signal) {
  let isRunning = false;
  let isWanted = false;
  return async () => {
    isWanted = true;
    if (isRunning) return;
    isRunning = true;
    while (isWanted && !signal?.aborted) {
      isWanted = false;
      await work().catch(tell);
      await pause(rest_ms);
    }
    isRunning = false;
  };
}

/** A button that does some work; while it is being done it rests; what fails is told. */
export function button(label, work, title = null) {
  const made = h("button", { type: "button", title, onclick: async () => {
    made.disabled = true;
    await work().catch(tell);
    made.disabled = false;
    // A button that rests loses the focus.
    if (document.activeElement === document.body) made.focus();
  } }, label);
  return made;
}

/** Show an error for a while. That nobody answers is told by the status. */
export function tell(error) {
  if (error.name === "AbortError" || (error instanceof Problem && error.status === 0)) return;
  if (!(error instanceof Problem)) console.error(error);
  const toast = h("p", {}, error.message, h("button", { type: "button", onclick: () => toast.remove() }, "×"));
  find("#toasts").append(toast);
  setTimeout(() => toast.remove(), TOAST_MS);
}
