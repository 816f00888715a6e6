"""A member of a consumer group of KIP-848 as a pure state machine: calls and responses go in, effects come out.

Has the interface and the effects of the members of other protocols (`client/member/group_member.py`), whose timers and
requests it uses. Does not depend on sockets or clocks. Start with `states.py` (the states), `reactions.py` (what each
error leads to) and `consumer_member.py` (the transitions).
"""
