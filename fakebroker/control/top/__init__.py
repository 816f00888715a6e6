"""`fakebroker top`: a cluster in a terminal, live.

Depends on the control client and Rich (extra `control`). `screen.py` runs it, `observer.py` fetches the state, and
`rendering.py` renders it.
"""
