// The event stream of the page: reopened after failures and when a view needs other events, closed while the page is
// hidden. Views listen with `on`. Also the brokers' time, throttled requests, buttons and error messages.

import { Problem, readStream } from "./api.js";
import { find, h } from "./dom.js";

const bus = new EventTarget();
const MAX_BACKOFF_MS = 5000;
const TOAST_MS = 8000;

let subscription = { requests: false, group: null };
let controller = null;

/** The latest overview; null before the first one. */
export let overview = null;

/**
 * Listen to the events "overview", "groups", "requests" and "timeline", until `signal` aborts. "opened" follows each
 * reconnect; events may have been lost before it.
 */
export const on = (name, listener, signal) => bus.addEventListener(name, ({ detail }) => listener(detail), { signal });

/** Select optional events: `requests`, and the timeline of a `group`. */
export function subscribe({ requests, group }) {
  if (controller && requests === subscription.requests && group === subscription.group) return;
  subscription = { requests, group };
  reopen();
}

/** Reopen the stream, or close it while the page is hidden: browsers limit the connections to a server to six. */
function reopen() {
  controller?.abort();
  controller = new AbortController();
  if (!document.hidden) follow(controller.signal);
}

document.addEventListener("visibilitychange", reopen);

async function follow(signal) {
  for (let backoff_ms = 500; !signal.aborted; backoff_ms = Math.min(2 * backoff_ms, MAX_BACKOFF_MS)) {
    const kinds = subscription.requests ? "overview,groups,requests" : "overview,groups";
    try {
      await readStream({ kinds, group: subscription.group }, signal, (name, detail) => {
        backoff_ms = 250;
        dispatch(name, detail);
      });
      showStatus("lost", "Disconnected. Reconnecting.");
    } catch (error) {
      const reason = error instanceof Problem ? error.message : "Disconnected.";
      if (!signal.aborted) showStatus("lost", `${reason} Reconnecting.`);
    }
    if (!signal.aborted) await pause(backoff_ms);
  }
}

function dispatch(name, detail) {
  if (name === "opened") showStatus("live", "Live");
  if (name === "overview") {
    overview = detail;
    setTime(detail.clock);
  }
  bus.dispatchEvent(new CustomEvent(name, { detail }));
}

function showStatus(kind, text) {
  const element = find("#status");
  if (element.textContent === text) return;
  element.dataset.kind = kind;
  element.textContent = text;
}

// The brokers' time

let time = null;

/** Set the brokers' time. The speed of a scaled clock is measured between overviews. */
function setTime({ now_ms, kind }) {
  const at_ms = performance.now();
  const passed_ms = time ? at_ms - time.at_ms : 0;
  const measured = passed_ms > 500 ? (now_ms - time.now_ms) / passed_ms : (time?.speed ?? 1);
  time = { now_ms, at_ms, kind, speed: { manual: 0, real: 1 }[kind] ?? measured };
}

/** Return the brokers' time in milliseconds since the epoch, extrapolated from the latest overview. */
export const nowMs = () => (time ? time.now_ms + (performance.now() - time.at_ms) * time.speed : Date.now());

// Requests and their errors

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Return a function that calls `work` at once, or, while it is running and until `interval_ms` after its end, once
 * more then, however many calls there were.
 */
export function throttled(work, interval_ms, signal) {
  let isRunning = false;
  let isPending = false;
  return async () => {
    isPending = true;
    if (isRunning) return;
    isRunning = true;
    while (isPending && !signal?.aborted) {
      isPending = false;
      await work().catch(showError);
      await pause(interval_ms);
    }
    isRunning = false;
  };
}

/** Create a button that is disabled while `work` runs; its errors are shown. */
export function button(label, work, title = null) {
  const element = h("button", { type: "button", title, onclick: async () => {
    element.disabled = true;
    await work().catch(showError);
    element.disabled = false;
    // Disabled elements lose the focus.
    if (document.activeElement === document.body) element.focus();
  } }, label);
  return element;
}

/** Show an error for some seconds, except a lost connection, which the status line shows. */
export function showError(error) {
  if (error.name === "AbortError" || (error instanceof Problem && error.status === 0)) return;
  if (!(error instanceof Problem)) console.error(error);
  const toast = h("p", {}, error.message, h("button", { type: "button", onclick: () => toast.remove() }, "×"));
  find("#toasts").append(toast);
  setTimeout(() => toast.remove(), TOAST_MS);
}
