"""A transactional producer as a pure state machine: calls and responses go in, effects come out (KIP-98, KIP-890).

Does not depend on sockets or clocks. Used by replays. Start with `states.py` (the states), `reactions.py` (what each
error leads to) and `producer.py` (the transitions).
"""
