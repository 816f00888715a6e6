"""The handlers of the APIs that the proposal replaces. The cluster imports each with the first request."""
