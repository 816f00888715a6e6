"""A member of a consumer group as a pure state machine: calls and responses go in, effects come out.

Does not depend on sockets or clocks. Used by the consumer, by replays and by simulations in virtual time. Start with
`group_member.py`, the interface of members to their drivers. Of the classic protocol, `states.py` has the states,
`reactions.py` what each error leads to, and `member.py` the transitions; `consumer/` is the same for the consumer
protocol (KIP-848), and `rewrite/` for the proposal `rewrite`.
"""
