"""A member of a consumer group as a pure state machine: calls and responses go in, effects come out.

Does not depend on sockets or clocks. Used by the consumer, by replays and by simulations in virtual time. Start with
`states.py` (the states), `reactions.py` (what each error leads to) and `member.py` (the transitions). `rewrite/` is the
same for the proposal `rewrite`.
"""
