"""The promises of coordinators to members of the consumer protocol (KIP-848): queries for violations and for cases.

As in promise_queries.py, on the views in consumer_views.py. The parameter `:session_us` is the session timeout of the
brokers.
"""

from fakebroker.replay.verify.bounds import CLOCK_SKEW_US, NO_LOOKUP

OWNERS = f"""
    select `group`, cast(null as int) generation, array(former.member, member) members, min(from_us) at_us,
        max(former.proof_us) until_us, concat(array_join(array_sort(collect_list(partition)), ', '), ' of ', `group`,
            ': assigned to ', member, ' before ', former.member, ' gave up') what
    from moves where former.proof_us > from_us + {CLOCK_SKEW_US} group by `group`, former.member, member"""

OWNERS_CASES = "select `group`, count(*) cases from moves group by `group`"

COMMITTED = """
    select `group`, generation, array(member) members, told_us at_us, max(tried_us) until_us,
        concat(member, ' could not commit ', array_join(array_sort(collect_set(partition)), ', '), ' of ', `group`,
            ' before it gave up') what
    from last_commits where is_refused and not coalesce(is_committed, false)
    group by `group`, generation, member, told_us"""

COMMITTED_CASES = """
    select `group`, count_if(is_committed or is_refused) cases from last_commits group by `group`"""

EPOCHS = """
    select `group`, generation, array(member) members, former.done_us at_us, done_us until_us,
        concat(member, ' of ', `group`, ' got epoch ', generation, ' after epoch ', former.generation) what
    from compared_epochs where generation < former.generation"""

EPOCHS_CASES = "select `group`, count(*) cases from compared_epochs group by `group`"

SILENT = """
    select `group`, generation, array(member) members, since_us at_us, until_us,
        concat(what, ', with a session timeout of ', round(:session_us / 1e6, 1), ' s') what
    from silences where is_broken"""

SILENT_CASES = "select `group`, count(*) cases from silences group by `group`"

BEATING = """
    select `group`, generation, array(member) members, since_us at_us, until_us,
        concat(member, ' got UNKNOWN_MEMBER_ID from ', `group`, ' ', round((until_us - since_us) / 1e6, 3),
            ' s after a successful heartbeat') what
    from removals"""

BEATING_CASES = f"""
    select `group`, count(*) cases from (
        select `group`, member from (
            select `group`, member, min(done_us) since_us, max(last_us) until_us
            from beats where error = 0 and epoch >= 0 group by `group`, member, term
        ) s {NO_LOOKUP} where until_us > since_us + :session_us
        union select `group`, member from removals)
    group by `group`"""

STALE = """
    select `group`, sent_epoch generation, array(member) members, before.done_us at_us, last_us until_us,
        concat(api, ' of ', member, ' with epoch ', sent_epoch, ' of ', `group`, ' was accepted after epoch ',
            before.generation) what
    from old_epochs where is_accepted"""

STALE_CASES = "select `group`, count(*) cases from old_epochs group by `group`"

FENCED = """
    select `group`, max_by(generation, last_us) generation, array(any_value(member)) members, max(holder.done_us) at_us,
        max(last_us) until_us, concat('a request of ', member_id, ' in ', `group`, ' was accepted after ',
            max_by(holder.member_id, last_us), ' had taken over its instance id ', instance_id) what
    from replaced_ids where is_accepted group by `group`, instance_id, member_id"""

FENCED_CASES = "select `group`, count(distinct member_id) cases from replaced_ids group by `group`"

UNKNOWN = """
    select `group`, generation, array(member) members, since_us at_us, until_us, concat('a request of ', member_id,
        ' in ', `group`, ' was accepted after ', if(is_removed, 'the response UNKNOWN_MEMBER_ID', 'it had left')) what
    from after_the_end where is_known"""

UNKNOWN_CASES = "select `group`, count(*) cases from after_the_end group by `group`"

TARGETS = """
    select `group`, newest generation, if(size(late) > 0, late, members) members, since_us at_us, until_us, concat(
        if(size(late) > 0,
            concat(array_join(slice(late, 1, 5), ', '), ' of ', `group`, ' did not reach epoch ', newest),
            concat(array_join(slice(missing, 1, 5), ', '), if(size(missing) > 5, concat(' and ', size(missing) - 5,
                ' more'), ''), ' of ', `group`, ': not assigned in epoch ', newest)),
        ' within ', round((until_us - since_us) / 1e6, 1), ' s') what
    from quiet_times where size(late) > 0 or size(missing) > 0"""

TARGETS_CASES = "select `group`, count(*) cases from quiet_times group by `group`"
