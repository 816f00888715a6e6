"""Regular expressions of consumers, with RE2 as in Kafka. Needs the package google-re2, the extra `regex`."""

from functools import lru_cache

from fakebroker.coordinator.consumer.subscriptions import InvalidRegexError, Matcher

_CACHE_SIZE = 1000

_DESCRIPTIONS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid character class": "invalid character class range",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "unexpected )": "regexp/syntax: internal error",
}
"""Errors of RE2, and the descriptions of the same errors in RE2/J, which Kafka uses."""


@lru_cache(_CACHE_SIZE)
def compile_regex(pattern: str) -> Matcher:
    """Return a function that matches whole names of topics with a pattern (`Utils.throwIfRegularExpressionIsInvalid`).

    Raises:
        InvalidRegexError: The pattern is invalid, or google-re2 is not installed. The message of the first is Kafka's.
    """
    try:
        import re2  # Here because it is an extra.
    except ImportError:
        text = f"SubscribedTopicRegex `{pattern}` requires the extra 'regex': pip install 'fakebroker[regex]'."
        raise InvalidRegexError(text) from None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        (reason,) = error.args
        description = _description(reason.decode() if isinstance(reason, bytes) else str(reason))
        text = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {description}."
        raise InvalidRegexError(text) from None
    return lambda name: compiled.fullmatch(name) is not None


def _description(reason: str) -> str:
    """Return RE2/J's description of an error of RE2. `reason` also has a part of the pattern."""
    description = reason.partition(": ")[0]
    return _DESCRIPTIONS.get(description, description)
