// Faults: which there are and how often they were met, and a form for another one. The form has one field for each
// argument of `fail`; the server says what cannot be, and the form says it at the field.

import { get, post, Problem, remove } from "./api.js";
import { find, h, keyed, number, option, row, table, write } from "./dom.js";
import { button, calmly, on, overview, tell } from "./live.js";

const REST_MS = 500;

// For each argument its words, its type if it is no flag, and an example.
const ACTS = {
  error: ["answers with the error", "text", "NOT_COORDINATOR"],
  delay_s: ["answers later, by seconds", "number", "2"],
  drop: ["closes the connection instead of answering"],
  silent: ["never answers"],
  twice: ["answers twice"],
  stale: ["names old leaders and coordinators"],
  cut_bytes: ["sends only so many bytes of the answer", "number", "10"],
  garble_bytes: ["garbles so many bytes of the answer", "number", "4"],
  throttle_time_ms: ["throttles, ms", "number", "1000"],
};
const WHICH = {
  api: ["API", "text", "JoinGroup"],
  group: ["Group", "text"],
  client_id: ["Client id", "text"],
  broker: ["Broker", "number"],
};
const WHICH_MORE = {
  member_id: ["Member id", "text"],
  instance_id: ["Static id", "text"],
  topic: ["Topic", "text"],
  partition: ["Partition", "text", "orders-0"],
  versions: ["Versions", "text", "0-3"],
};
const WHEN = { times: ["At most so many times", "number"], for_s: ["For so many seconds", "number"] };
const WHEN_MORE = {
  after_s: ["Beginning after seconds", "number"],
  nth: ["Only the nth", "number"],
  every: ["Each so manieth", "number"],
  probability: ["With probability", "number", "0.5"],
};
const FIELDS = { ...WHICH, ...WHICH_MORE, ...WHEN, ...WHEN_MORE };
const HANDLES = { "": "by default", true: "yes", false: "no" };

/** Errors that tests want most; any other can be written as well. */
const ERRORS = [
  "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "REBALANCE_IN_PROGRESS",
  "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID", "GROUP_AUTHORIZATION_FAILED",
  "UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT", "UNKNOWN_SERVER_ERROR",
];

export function open(root, query, signal) {
  const none = h("p", { class: "none" }, "Nothing goes wrong on purpose. Add a fault below.");
  const clear = button("Remove all", () => remove("/faults").then(load));
  const list = table(["Requests", "What goes wrong", "Met", ""]);
  const load = calmly(async () => {
    const { faults } = await get("/faults", {}, signal);
    none.hidden = faults.length > 0;
    clear.hidden = faults.length < 2;
    list.hidden = faults.length === 0;
    const update = (line, { hits }) => write(find(".hits", line), number(hits));
    keyed(list.body, faults, ({ id }) => id, (fault) => makeRow(fault, load), update);
  }, REST_MS, signal);
  root.append(h("h2", {}, "Faults ", clear), none, list, new Form(load).element);
  on("overview", load, signal);
  load();
}

function makeRow({ id, rule }, load) {
  const end = button("Remove", () => remove(`/faults/${encodeURIComponent(id)}`).then(load));
  end.dataset.row = "";
  return row(whichOf(rule), actOf(rule), h("span", { class: "hits" }), end);
}

/** Which requests a rule meets, in words. */
function whichOf({ api, ...rule }) {
  const given = Object.entries(rule).filter(([name]) => name in FIELDS);
  const words = given.map(([name, value]) => `${FIELDS[name][0].toLowerCase()} ${value}`);
  return [api ?? "Every request", ...words].join(", ");
}

/** What goes wrong then, in words. */
function actOf(rule) {
  const acts = Object.entries(rule).filter(([name]) => name in ACTS);
  const words = acts.map(([name, value]) => (value === true ? ACTS[name][0] : `${ACTS[name][0]}: ${value}`));
  const handled = { true: "the request is handled all the same", false: "the request is not handled" }[rule.handles];
  return [...words, handled].filter(Boolean).join("; ");
}

// The form

class Form {
  #load;
  #kind = h("select", { name: "act", "aria-label": "What goes wrong" },
    Object.entries(ACTS).map(([name, [label]]) => option(name, label)));
  #value = h("input", { name: "value", "aria-label": "Value", list: "errors" });
  #handles = h("select", { name: "handles" }, Object.entries(HANDLES).map((each) => option(...each)));
  #add = h("button", { class: "main" }, "Add the fault");
  #refusal = h("p", { class: "bad", role: "alert" });

  constructor(load) {
    this.#load = load;
    this.element = h("form", { class: "fault", novalidate: true },
      h("h2", {}, "Add a fault"),
      part("Which requests", fieldsOf(WHICH), more("More: member, topic, versions", WHICH_MORE)),
      part("What goes wrong", h("label", {}, "The broker ", this.#kind), this.#value,
        h("label", {}, "The request is handled ", this.#handles)),
      part("How often", fieldsOf(WHEN), more("More: from when, which of them, how likely", WHEN_MORE)),
      h("datalist", { id: "apis" }, (overview?.rates.by_api ?? []).map(({ api }) => option(api))),
      h("datalist", { id: "errors" }, ERRORS.map((each) => option(each))),
      this.#refusal, this.#add);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#kind.addEventListener("change", () => this.#showValue());
    this.#showValue();
  }

  #showValue() {
    const [, type, example] = ACTS[this.#kind.value];
    this.#value.hidden = !type;
    this.#value.value = "";
    this.#value.placeholder = example ?? "";
  }

  async #send() {
    write(this.#refusal, "");
    for (const field of this.element.elements) field.removeAttribute("aria-invalid");
    this.#add.disabled = true;
    try {
      await post("/faults", this.#rule());
      this.element.reset();
      this.#showValue();
      this.#load();
    } catch (error) {
      if (error instanceof Problem && error.status) this.#refuse(error);
      else tell(error);
    } finally {
      this.#add.disabled = false;
    }
  }

  #refuse({ message, field }) {
    write(this.#refusal, message);
    const named = this.element.elements.namedItem(field) ?? (field in ACTS ? this.#value : null);
    named?.setAttribute("aria-invalid", "true");
    named?.focus();
  }

  /** The rule as the form says it: what is empty is left out, numbers are numbers where they can be. */
  #rule() {
    const { elements } = this.element;
    const given = Object.entries(FIELDS).map(([name, [, type]]) => [name, read(elements.namedItem(name).value, type)]);
    const [, type] = ACTS[this.#kind.value];
    const rule = { api: null, ...Object.fromEntries(given.filter(([, value]) => value !== "")) };
    rule[this.#kind.value] = type ? read(this.#value.value, type) : true;
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

function read(text, type) {
  const given = text.trim();
  return type === "text" || given === "" || Number.isNaN(Number(given)) ? given : Number(given);
}
