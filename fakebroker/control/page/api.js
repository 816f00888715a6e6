// Asking the control API, and its event stream. Asks for a token when one is wanted; says what went wrong as a Problem.
// Knows no element but the token's dialog.

import { find } from "./dom.js";

export const CLUSTER = new URLSearchParams(location.search).get("cluster") ?? "default";
const ROOT = `/v1/clusters/${encodeURIComponent(CLUSTER)}`;
const TOKEN = "fakebroker token";

/** What the API has refused: `message` is for people; `field` is the argument that it is about, if it is about one. */
export class Problem extends Error {
  constructor(status, detail, field) {
    super(detail);
    this.status = status;
    this.field = field;
  }
}

/** Ask for something of the cluster: the answer as data. */
export const get = (path, query = {}, signal = undefined) =>
  ask("GET", ROOT + path + queryOf(query), undefined, signal);
export const post = (path, body = {}) => ask("POST", ROOT + path, body);
export const remove = (path) => ask("DELETE", ROOT + path);
export const getClusters = () => ask("GET", "/v1/clusters");

/** The query of a URL; null is left out. */
export function queryOf(query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/** Where a group is. A URL loses the parts "." and "..", quoted or not: the API has a spelling of its own for them. */
export function groupPath(groupId) {
  const spelled = groupId.replaceAll("~", "~7E");
  return `/groups/${/^\.{1,2}$/.test(spelled) ? spelled.replaceAll(".", "~2E") : encodeURIComponent(spelled)}`;
}

async function ask(method, url, body, signal) {
  const response = await send(method, url, body, signal);
  const text = await response.text();
  const data = text ? JSON.parse(text) : null;
  if (!response.ok) throw new Problem(response.status, data?.detail ?? response.statusText, data?.field);
  return data;
}

async function send(method, url, body, signal) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    if (body !== undefined) headers["content-type"] = "application/json";
    const sent = body === undefined ? undefined : JSON.stringify(body);
    const response = await fetch(url, { method, headers, body: sent, signal }).catch((error) => {
      throw signal?.aborted ? error : new Problem(0, `${location.host} does not answer. Is the process still there?`);
    });
    if (response.status !== 401) return response;
    if (token === sessionStorage.getItem(TOKEN)) await askForToken(token !== null);
  }
}

let asking = null;

/** One dialog for all who wait. */
function askForToken(wasWrong) {
  asking ??= new Promise((resolve) => {
    const dialog = find("#token");
    const input = find("#token-input");
    if (wasWrong) find("#token-why").textContent = "That is not it. Whoever started the process knows the token.";
    const close = () => {
      sessionStorage.setItem(TOKEN, input.value.trim());
      input.value = "";
      asking = null;
      resolve();
    };
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", close, { once: true });
    dialog.showModal();
  });
  return asking;
}

/** Read the event stream until it ends: `take(event name, data)` for each event. By fetch, which can carry a token. */
export async function readStream(query, signal, take) {
  const response = await send("GET", `${ROOT}/stream${queryOf(query)}`, undefined, signal);
  if (!response.ok) {
    const problem = await response.json().catch(() => null);
    throw new Problem(response.status, problem?.detail ?? response.statusText);
  }
  take("opened", null);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) takeEvent(block, take);
  }
}

function takeEvent(block, take) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) take(name, JSON.parse(data.join("\n")));
}
