"""Clients' parts of authentication, written independently of the package."""
