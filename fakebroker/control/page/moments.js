// Texts for the moments (recorded changes) of a group.

import { joinNames, withNames } from "./dom.js";

const MAX_NAMED = 8;

/** Remove moments recorded by zombies: former coordinators that have not noticed that they were replaced. */
export function withoutZombies(moments) {
  let coordinator = null;
  return moments.filter((moment) => {
    if (coordinator === null || moment.state_from === "Dead") coordinator = moment.coordinator_id;
    return moment.coordinator_id === coordinator;
  });
}

/** Describe a moment: its states, its cause, and the members that joined, rejoined or left. */
export function describe({ state_from, state_to, cause, joined, rejoined, left }, names) {
  const changes = Object.entries({ joined, rejoined, left }).filter(([, ids]) => ids.length);
  const toText = ([change, ids]) => `${change}: ${joinNames(ids.map((id) => names.get(id) ?? id), MAX_NAMED)}`;
  return {
    states: state_from === state_to ? state_to : `${state_from} → ${state_to}`,
    cause: withNames(cause, names),
    changes: changes.map(toText).join("; "),
  };
}
