"""A consumer of Kafka's consumer rewrite design as a pure state machine: calls and responses go in, effects come out.

Has the interface and the effects of the classic member in `client/member/`, whose timers and requests it uses. Does not
depend on sockets or clocks. Start with `states.py` (the states), `reactions.py` (what each error leads to) and
`rewrite_member.py` (the transitions).
"""
