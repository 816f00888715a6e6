"""The HTTP front end: a process of its own that serves HTTP and forwards requests to the brokers' process.

Depends on Starlette and Hypercorn (extra `control`). `gateway.py` is the process and `web.py` its ASGI application;
`answering.py` is the other end of the socket that connects them, inside the brokers' process.
"""
