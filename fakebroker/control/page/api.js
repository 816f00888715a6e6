// Client of the control API: JSON requests and the event stream. Prompts for the bearer token after a response with
// status 401. Failed requests throw a Problem.

import { find } from "./dom.js";

export const CLUSTER = new URLSearchParams(location.search).get("cluster") ?? "default";
const ROOT = `/v1/clusters/${encodeURIComponent(CLUSTER)}`;
const TOKEN = "fakebroker token";

/** An error response (RFC 9457): `message` is the detail, `field` the invalid argument or undefined. */
export class Problem extends Error {
  constructor(status, detail, field) {
    super(detail);
    this.status = status; // 0 without a response.
    this.field = field;
  }
}

/** Send a request below the path of the cluster. Return the JSON of the response. */
export const get = (path, query = {}, signal = undefined) =>
  request("GET", ROOT + path + queryOf(query), undefined, signal);
export const post = (path, body = {}) => request("POST", ROOT + path, body);
export const getClusters = () => request("GET", "/v1/clusters");
export const getDocument = () => request("GET", "/openapi.json");

/** Return the token that the user has entered; null if none was needed. */
export const savedToken = () => sessionStorage.getItem(TOKEN);

/** Return the query of a URL, without parameters that are null or undefined. */
export function queryOf(query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/**
 * Return the path of a group. Browsers remove the path segments "." and "..", also percent-encoded ones, so the API
 * encodes these ids with "~".
 */
export const groupPath = (groupId) => `/groups/${segment(groupId)}`;

/** Return the path of a transactional id. */
export const transactionPath = (transactionalId) => `/transactions/${segment(transactionalId)}`;

function segment(id) {
  const escaped = id.replaceAll("~", "~7E");
  return /^\.{1,2}$/.test(escaped) ? escaped.replaceAll(".", "~2E") : encodeURIComponent(escaped);
}

async function request(method, url, body, signal) {
  const response = await send(method, url, body, signal);
  const text = await response.text().catch(lost(signal));
  const data = text ? JSON.parse(text) : null;
  if (!response.ok) throw new Problem(response.status, data?.detail ?? response.statusText, data?.field);
  return data;
}

/** Return a function that throws the error of a lost connection, which may be lost while a body is read, too. */
const lost = (signal) => (error) => {
  throw signal?.aborted ? error : new Problem(0, `No response from ${location.host}. Is the process running?`);
};

async function send(method, url, body, signal) {
  for (;;) {
    const token = savedToken();
    const headers = token ? { authorization: `Bearer ${token}` } : {};
    if (body !== undefined) headers["content-type"] = "application/json";
    const content = body === undefined ? undefined : JSON.stringify(body);
    const response = await fetch(url, { method, headers, body: content, signal }).catch(lost(signal));
    if (response.status !== 401) return response;
    if (token === savedToken()) await promptForToken(token !== null);
  }
}

let tokenPrompt = null;

/** Show the token dialog. All requests that need the token wait for the same dialog. */
function promptForToken(isInvalid) {
  tokenPrompt ??= new Promise((resolve) => {
    const dialog = find("#token");
    const input = find("#token-input");
    if (isInvalid) find("#token-why").textContent = "Invalid token. It is printed on stderr when the process starts.";
    const close = () => {
      sessionStorage.setItem(TOKEN, input.value.trim());
      input.value = "";
      tokenPrompt = null;
      resolve();
    };
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", close, { once: true });
    dialog.showModal();
  });
  return tokenPrompt;
}

/**
 * Read the event stream until it ends and call `onEvent(name, data)` for each event, first with "opened".
 * It uses fetch, because EventSource cannot send an authorization header.
 */
export async function readStream(query, signal, onEvent) {
  const response = await send("GET", `${ROOT}/stream${queryOf(query)}`, undefined, signal);
  if (!response.ok) {
    const problem = await response.json().catch(() => null);
    throw new Problem(response.status, problem?.detail ?? response.statusText);
  }
  onEvent("opened", null);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) parseEvent(block, onEvent);
  }
}

function parseEvent(block, onEvent) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length) onEvent(name, JSON.parse(data.join("\n")));
}
