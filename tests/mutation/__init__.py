"""Mutations: small mistakes in the source of fakebroker, drawn at random, that its tests should notice.

A test suite that passes says little if it also passes with mistakes in the code. `mutations.json` lists 60 mutations,
drawn once with a seed; `results.json` says what noticed each. `make mutate` repeats the run (about an hour) and fails
if a mutation that was noticed is not noticed any more: worth doing after large changes. Start reading with `mutate.py`.

A refactoring that moves or rewrites the place of a mutation makes `test_mutations.py` fail. Update the entry so that
the mutation has the same effect; where nothing corresponds, choose the nearest effect, and drop none.
"""
