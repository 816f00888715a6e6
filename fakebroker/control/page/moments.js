// The moments of a group, in words.

import { listed, withNames } from "./dom.js";

const MAX_NAMED = 8;

/** Only what befell the group at its coordinator: an old one, which does not know, may go on for a time. */
export function withoutZombies(moments) {
  let coordinator = null;
  return moments.filter((moment) => {
    if (coordinator === null || moment.state_from === "Dead") coordinator = moment.coordinator_id;
    return moment.coordinator_id === coordinator;
  });
}

/** What a moment was, in words. */
export function told({ state_from, state_to, cause, joined, rejoined, left }, names) {
  const changes = Object.entries({ joined, rejoined, gone: left }).filter(([, ids]) => ids.length);
  const inWords = ([what, ids]) => `${what}: ${listed(ids.map((id) => names.get(id) ?? id), MAX_NAMED)}`;
  return {
    states: state_from === state_to ? state_to : `${state_from} → ${state_to}`,
    cause: withNames(cause, names),
    changes: changes.map(inWords).join("; "),
  };
}
