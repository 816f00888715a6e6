"""The users of a cluster: passwords, and SCRAM credentials that clients change (AlterUserScramCredentials)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from fakebroker.errors import ConfigError
from fakebroker.security.mechanisms import MIN_ITERATIONS, ScramMechanism

if TYPE_CHECKING:
    from fakebroker.security.scram import ScramCredential

_SALT_BYTES = 16
_NO_USERS: Mapping[str, str] = MappingProxyType({})


def checked_passwords(users: object) -> dict[str, str]:
    """Return passwords by user. Errors do not show passwords.

    Raises:
        ConfigError: `users` is not a mapping, or a user or a password is not a string of printable characters.
    """
    if not isinstance(users, Mapping):
        raise ConfigError("users: expected a table of passwords by user", field="users", expected="a table")
    passwords = {}
    for user, password in users.items():
        if not _is_text(user):
            raise ConfigError.of("users", user, "a name of printable characters")
        if not _is_text(password):
            raise ConfigError.of("users", user, "a user with a password, a string of printable characters")
        passwords[user] = password
    return passwords


def _is_text(value: object) -> bool:
    """Return whether a value is a string that can be sent: not empty, without NUL and lone surrogates."""
    return isinstance(value, str) and bool(value) and value.isprintable()


class Credentials:
    """Users with passwords, and SCRAM credentials.

    A user with a password has a SCRAM credential for each mechanism, too, until it is replaced or removed.

    Args:
        passwords: The passwords by user.
        random_bytes: Returns random bytes, for salts and nonces. The default is enough if no client authenticates.
    """

    def __init__(self, passwords: Mapping[str, str] = _NO_USERS, random_bytes: Callable[[int], bytes] = bytes) -> None:
        self._passwords = passwords
        self._random_bytes = random_bytes
        # None: not derived from the password yet, which takes milliseconds.
        self._scram: dict[tuple[str, ScramMechanism], ScramCredential | None] = {
            (user, mechanism): None for user in passwords for mechanism in ScramMechanism
        }
        self._changes: dict[tuple[str, ScramMechanism], ScramCredential | None] = {}

    def copy(self) -> "Credentials":
        """Return an independent copy."""
        copy = Credentials(self._passwords, self._random_bytes)
        copy._scram, copy._changes = dict(self._scram), dict(self._changes)
        return copy

    @property
    def changes(self) -> "Mapping[tuple[str, ScramMechanism], ScramCredential | None]":
        """The SCRAM credentials that were set, and None for those that were removed, by user and mechanism.

        Those that are derived from passwords are not among them.
        """
        return self._changes

    def restore(self, changes: "Mapping[tuple[str, ScramMechanism], ScramCredential | None]") -> None:
        """Repeat changes of an earlier process."""
        for (user, mechanism), credential in changes.items():
            if credential is not None:
                self.set_scram(user, credential)
            elif self.has_scram(user, mechanism):
                self.remove_scram(user, mechanism)

    def new_nonce(self) -> str:
        """Return the server's part of the nonce of an exchange."""
        return self._random_bytes(_SALT_BYTES).hex()

    def has_password(self, user: str, password: str) -> bool:
        """Return whether a user exists and has a password."""
        return self._passwords.get(user) == password

    def scram(self, user: str, mechanism: ScramMechanism) -> "ScramCredential | None":
        """Return a SCRAM credential; None if there is none."""
        key = user, mechanism
        if key not in self._scram:
            return None
        credential = self._scram[key]
        if credential is None:
            from fakebroker.security.scram import ScramCredential  # not at the top: few clusters have users

            salt = self._random_bytes(_SALT_BYTES)
            credential = self._scram[key] = ScramCredential.of_password(mechanism, self._passwords[user], salt)
        return credential

    def has_scram(self, user: str, mechanism: ScramMechanism) -> bool:
        """Return whether a user has a SCRAM credential."""
        return (user, mechanism) in self._scram

    def scram_iterations(self) -> dict[tuple[str, ScramMechanism], int]:
        """Return the iterations of all SCRAM credentials, by user and mechanism in ascending order."""
        return {
            key: MIN_ITERATIONS if credential is None else credential.iterations
            for key, credential in sorted(self._scram.items(), key=lambda item: item[0])
        }

    def set_scram(self, user: str, credential: "ScramCredential") -> None:
        """Add or replace a SCRAM credential."""
        self._scram[user, credential.mechanism] = self._changes[user, credential.mechanism] = credential

    def remove_scram(self, user: str, mechanism: ScramMechanism) -> None:
        """Remove a SCRAM credential, which must exist. A password remains, for PLAIN."""
        del self._scram[user, mechanism]
        self._changes[user, mechanism] = None
