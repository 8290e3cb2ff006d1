"""The exceptions of the runtime."""


class Error(RuntimeError):
    """A call of the runtime failed.

    The message says what failed and what to do about it, and may change. ``kind`` is stable: a status name of
    docs/errors.md, such as ``"out_of_memory"``.

    >>> try:
    ...     rt.zeros(1 << 50)
    ... except rushmem.Error as error:
    ...     print(error.kind)
    out_of_memory
    """

    __module__ = "rushmem"
    kind: str

    def __init__(self, message: str, kind: str = "internal") -> None:
        super().__init__(message)
        self.kind = kind


class PeerLostError(Error):
    """Another PE died, failed or aborted the job."""

    __module__ = "rushmem"


class DeadlineError(Error, TimeoutError):
    """A wait reached its deadline: the setting ``timeout``, or ``bootstrap_timeout`` while PEs find each other."""

    __module__ = "rushmem"


class MisuseError(Error, ValueError):
    """An argument, a setting or the order of calls is invalid."""

    __module__ = "rushmem"
