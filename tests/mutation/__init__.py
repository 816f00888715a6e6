"""Mutation tests: small mistakes in the source of fakebroker, drawn at random, which its tests should notice.

`mutations.json` lists 60 mutations that were drawn once with a seed; `results.json` has the test or check that noticed
each. `make mutate` runs them again, which takes about an hour, and fails if a mutation is not noticed any more. Run it
after large changes. Start reading with `mutate.py`.

`test_mutations.py` fails if a refactoring moves or rewrites the code of a mutation. Then update the entry so that the
mutation has the same effect. If there is no such code any more, choose a mutation with a similar effect; do not remove
entries.
"""
