"""Tests of the placement study."""
