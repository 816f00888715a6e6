"""Actions of faults: commands and functions that run at the boundaries of a request, before or after it is handled.

An action never runs while a request is handled or a timer expires: it is queued, and the owner of the cluster calls
`PendingActions.run` before it handles another request and before it sends responses. Does not depend on commands.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fakebroker.cluster.call import Call
from fakebroker.errors import FakebrokerError

MAX_ACTIONS = 100
"""Maximum number of actions at one boundary, those included that requests of other actions cause."""

MAX_ERRORS = 20
"""Maximum number of errors that are kept."""

MAX_ERROR_LENGTH = 1_000
"""Maximum length of an error, in characters."""


class BoundAction(NamedTuple):
    """An action that can be run.

    Attributes:
        name: The event, or the name of the function, for errors.
        run: Runs it, with the request.
    """

    name: str
    run: Callable[[Call], object]


class ErrorList(Protocol):
    """Keeps the errors of its actions; an active fault."""

    errors: list[str]


class _Pending(NamedTuple):
    actions: Sequence[BoundAction]
    call: Call
    fault: ErrorList
    proceed: Callable[[], None] | None


class PendingActions:
    """The actions that are due, in order.

    Attributes:
        is_running: Whether an action is running: responses must not be sent before the last action.
        errors: The last errors of actions, as text, oldest first.
        log: Called with the text of an error, and the exception.
    """

    def __init__(self) -> None:
        self.errors: deque[str] = deque(maxlen=MAX_ERRORS)
        self.log: Callable[[str, Exception], None] = lambda text, error: None
        self._pending: deque[_Pending] = deque()
        self.is_running = False

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(
        self,
        actions: Sequence[BoundAction],
        call: Call,
        fault: ErrorList,
        proceed: Callable[[], None] | None = None,
    ) -> None:
        """Add actions.

        Args:
            actions: The actions.
            call: The request.
            fault: The fault, which gets their errors.
            proceed: Called after the actions, also if they fail.
        """
        self._pending.append(_Pending(actions, call, fault, proceed))

    def run(self) -> None:
        """Run the actions that are due. Errors are kept and logged; later actions still run.

        Actions that become due meanwhile run afterwards. If there are more than `MAX_ACTIONS` of them, the rest is
        dropped, because an action that causes requests may cause itself.
        """
        if self.is_running:
            return
        self.is_running = True
        count = 0
        try:
            while self._pending:
                actions, call, fault, proceed = self._pending.popleft()
                for action in actions:
                    count += 1
                    if count > MAX_ACTIONS:
                        expected = f"at most {MAX_ACTIONS} actions at one request; they may cause each other"
                        self._failed(action, call, fault, FakebrokerError(f"not run: expected {expected}"))
                        break
                    try:
                        action.run(call)
                    except Exception as error:
                        self._failed(action, call, fault, error)
                if proceed is not None:
                    proceed()
        finally:
            self.is_running = False

    def clear(self) -> None:
        """Drop the actions and errors, because the cluster is reset. The requests before them are not handled."""
        self._pending.clear()
        self.errors.clear()

    def _failed(self, action: BoundAction, call: Call, fault: ErrorList, error: Exception) -> None:
        reason = str(error) if isinstance(error, FakebrokerError) else repr(error)
        text = f"{action.name} at {call!r}: {reason}"[:MAX_ERROR_LENGTH]
        self.errors.append(text)
        if len(fault.errors) < MAX_ERRORS:
            fault.errors.append(text)
        call.boundaries.errors.append(text)
        self.log(text, error)
