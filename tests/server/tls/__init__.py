"""TLS over sockets: connections, certificates of clients, settings. Real clients are in `tests/interop`."""
