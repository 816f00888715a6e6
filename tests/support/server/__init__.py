"""Harnesses around a running cluster for tests of its server."""
