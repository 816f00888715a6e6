"""The HTTP front: a process of its own that serves HTTP and passes requests to the brokers' process over a socket.

Depends on Starlette and Hypercorn (extra `control`). `gateway.py` is the process and `web.py` its ASGI application;
`answering.py` is the other end of the socket, inside the brokers' process.
"""
