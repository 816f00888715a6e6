// The view of faults: a list with the number of matched requests, and a form that adds one. The form has a field for
// each argument of `inject_fault` but `where`; the server validates it, and its error is shown at the field.

import { get, post, Problem } from "./api.js";
import { find, h, number, option, row, setText, table, updateList } from "./dom.js";
import { button, on, overview, showError, throttled } from "./live.js";

const INTERVAL_MS = 500;

// For each argument: label, type (flags have none), example.
const EFFECTS = {
  error: ["return error", "text", "NOT_COORDINATOR"],
  delay_s: ["delay response (s)", "number", "2"],
  drop: ["close connection without response"],
  silent: ["never respond"],
  twice: ["respond twice"],
  stale: ["return stale leaders and coordinators"],
  cut_bytes: ["truncate response to bytes", "number", "10"],
  garble_bytes: ["corrupt bytes of response", "number", "4"],
  throttle_time_ms: ["throttle (ms)", "number", "1000"],
};
const MATCH = {
  api: ["API", "text", "JoinGroup"],
  group: ["Group", "text"],
  client_id: ["Client id", "text"],
  broker: ["Broker", "number"],
};
const MORE_MATCH = {
  member: ["Member", "text"],
  transactional_id: ["Transactional id", "text"],
  topic: ["Topic", "text"],
  topic_id: ["Topic id", "text"],
  partition: ["Partition", "text", "orders-0"],
  resource: ["Resource", "text", "user:alice"],
  versions: ["Versions", "text", "0-3"],
};
const SCHEDULE = { times: ["Maximum count", "number"], for_s: ["Duration (s)", "number"] };
const MORE_SCHEDULE = {
  after_s: ["Start after (s)", "number"],
  nth: ["Only the nth match", "number"],
  every: ["Every nth match", "number"],
  probability: ["Probability", "number", "0.5"],
};
const FIELDS = { ...MATCH, ...MORE_MATCH, ...SCHEDULE, ...MORE_SCHEDULE };
const HANDLES = { "": "default", true: "yes", false: "no" };

/** Suggested errors; the field accepts any other. */
const ERRORS = [
  "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "REBALANCE_IN_PROGRESS",
  "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID", "GROUP_AUTHORIZATION_FAILED",
  "CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "TRANSACTION_ABORTABLE",
  "UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "UNKNOWN_SERVER_ERROR",
];

export function open(root, query, signal) {
  const none = h("p", { class: "none" }, "No faults. Add one below.");
  const clear = button("Remove all", () => post("/clear_faults").then(load));
  const list = table(["Requests", "Effect", "Matches", ""]);
  const load = throttled(async () => {
    const faults = await get("/faults", {}, signal);
    none.hidden = faults.length > 0;
    clear.hidden = faults.length < 2;
    list.hidden = faults.length === 0;
    const update = (line, { hits, is_over }) => setText(find(".hits", line), number(hits) + (is_over ? " (over)" : ""));
    updateList(list.body, faults, ({ id }) => id, (fault) => makeRow(fault, load), update);
  }, INTERVAL_MS, signal);
  root.append(h("h2", {}, "Faults ", clear), none, list, new Form(load).element);
  on("overview", load, signal);
  load();
}

function makeRow({ id, rule }, load) {
  const end = button("Remove", () => post(`/faults/${encodeURIComponent(id)}/remove`).then(load));
  end.dataset.row = "";
  return row(describeMatch(rule), describeEffect(rule), h("span", { class: "hits" }), end);
}

/** Describe which requests a rule matches. */
function describeMatch({ api, ...rule }) {
  const given = Object.entries(rule).filter(([name]) => name in FIELDS);
  const conditions = given.map(([name, value]) => `${FIELDS[name][0].toLowerCase()}: ${value}`);
  return [api ?? "Every request", ...conditions].join(", ");
}

/** Describe what a rule does with matching requests. */
function describeEffect(rule) {
  const given = Object.entries(rule).filter(([name]) => name in EFFECTS);
  const effects = given.map(([name, value]) => (value === true ? EFFECTS[name][0] : `${EFFECTS[name][0]}: ${value}`));
  const handled = { true: "request is handled", false: "request is not handled" }[rule.handles];
  return [...effects, handled].filter(Boolean).join("; ");
}

// The form

class Form {
  #load;
  #effect = h("select", { name: "effect", "aria-label": "Effect" },
    Object.entries(EFFECTS).map(([name, [label]]) => option(name, label)));
  #value = h("input", { name: "value", "aria-label": "Value", list: "errors" });
  #handles = h("select", { name: "handles" }, Object.entries(HANDLES).map((each) => option(...each)));
  #add = h("button", { class: "main" }, "Add fault");
  #error = h("p", { class: "bad", role: "alert" });

  constructor(load) {
    this.#load = load;
    this.element = h("form", { class: "fault", novalidate: true },
      h("h2", {}, "Add a fault"),
      part("Requests", fieldsOf(MATCH), more("More: member, topic, versions", MORE_MATCH)),
      part("Effect", this.#effect, this.#value, h("label", {}, "Handle the request ", this.#handles)),
      part("Schedule", fieldsOf(SCHEDULE), more("More: start, nth match, probability", MORE_SCHEDULE)),
      h("datalist", { id: "apis" }, (overview?.rates.by_api ?? []).map(({ api }) => option(api))),
      h("datalist", { id: "errors" }, ERRORS.map((each) => option(each))),
      this.#error, this.#add);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#effect.addEventListener("change", () => this.#resetValue());
    this.#resetValue();
  }

  #resetValue() {
    const [, type, example] = EFFECTS[this.#effect.value];
    this.#value.hidden = !type;
    this.#value.value = "";
    this.#value.placeholder = example ?? "";
  }

  async #send() {
    setText(this.#error, "");
    for (const field of this.element.elements) field.removeAttribute("aria-invalid");
    this.#add.disabled = true;
    try {
      await post("/inject_fault", this.#rule());
      this.element.reset();
      this.#resetValue();
      this.#load();
    } catch (error) {
      if (error instanceof Problem && error.status) this.#showProblem(error);
      else showError(error);
    } finally {
      this.#add.disabled = false;
    }
  }

  #showProblem({ message, field }) {
    setText(this.#error, message);
    const invalid = this.element.elements.namedItem(field) ?? (field in EFFECTS ? this.#value : null);
    invalid?.setAttribute("aria-invalid", "true");
    invalid?.focus();
  }

  /** The rule without empty fields. Numbers that cannot be parsed stay strings, and the server rejects them. */
  #rule() {
    const { elements } = this.element;
    const given = Object.entries(FIELDS).map(([name, [, type]]) => [name, parse(elements.namedItem(name).value, type)]);
    const [, type] = EFFECTS[this.#effect.value];
    const rule = { api: null, ...Object.fromEntries(given.filter(([, value]) => value !== "")) };
    rule[this.#effect.value] = type ? parse(this.#value.value, type) : true;
    if (this.#handles.value) rule.handles = this.#handles.value === "true";
    return rule;
  }
}

const part = (title, ...content) => h("fieldset", {}, h("legend", {}, title), content);

const more = (title, fields) => h("details", {}, h("summary", {}, title), fieldsOf(fields));

const fieldsOf = (fields) => Object.entries(fields).map(([name, [label, , example]]) => {
  const first = name === "api" ? { list: "apis", "data-first": "" } : {};
  return h("label", {}, `${label} `, h("input", { name, placeholder: example ?? "any", ...first }));
});

function parse(text, type) {
  const given = text.trim();
  return type === "text" || given === "" || Number.isNaN(Number(given)) ? given : Number(given);
}
