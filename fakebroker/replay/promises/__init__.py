"""What coordinators promise, as observers of the events of a replay. Start with observer.py."""
