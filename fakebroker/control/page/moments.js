// Texts for the moments (recorded changes) of a group or a transactional id.

import { joinNames, partitionRanges, withNames } from "./dom.js";

const MAX_NAMED = 8;

/** Remove moments recorded by zombies: former coordinators that have not noticed that they were replaced. */
export function withoutZombies(moments) {
  let coordinator = null;
  return moments.filter((moment) => {
    if (coordinator === null || moment.state_from === "Dead") coordinator = moment.coordinator_id;
    return moment.coordinator_id === coordinator;
  });
}

/**
 * Return the moments of a transactional id in the form of those of a group: epochs as generations, partitions as
 * members, without those of zombies.
 */
export function asMoments(moments) {
  let before = [];
  return withoutZombies(moments).map(({ producer_epoch, partitions, ...moment }) => {
    if (moment.state_from === "Dead") before = [];
    const added = partitions.filter((each) => !before.includes(each));
    const ended = before.filter((each) => !partitions.includes(each));
    before = partitions;
    return { ...moment, generation_id: producer_epoch, members: partitions, added, ended };
  });
}

/** Describe a moment: its states, its cause, and the members, or the partitions, that changed. */
export function describe({ state_from, state_to, cause, joined, rejoined, left, added, ended, changes }, names) {
  const lists = Object.entries({ joined, rejoined, left, added, ended }).filter(([, ids]) => ids?.length);
  const toText = ([change, ids]) => `${change}: ${joinNames(ids.map((id) => names.get(id) ?? id), MAX_NAMED)}`;
  const described = (changes ?? []).map((each) => `${names.get(each.member_id) ?? each.member_id} ${holdings(each)}`);
  return {
    states: state_from === state_to ? state_to : `${state_from} → ${state_to}`,
    cause: withNames(cause, names),
    changes: [...lists.map(toText), ...(described.length ? [joinNames(described, MAX_NAMED)] : [])].join("; "),
  };
}

/** Describe a member of a consumer group after a change: its epoch and its partitions. */
function holdings({ member_epoch, assigned, pending_revocation }) {
  const givesUp = pending_revocation.length ? `, has to give up ${partitionRanges(pending_revocation).join(", ")}` : "";
  return `in epoch ${member_epoch} has ${partitionRanges(assigned).join(", ") || "nothing"}${givesUp}`;
}
