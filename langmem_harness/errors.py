"""Every error this package raises, in one tree.

    LangMemHarnessError
    ├── ConfigurationError (ValueError)        a setting or argument that cannot work
    │   └── MissingExtraError (ImportError)    an optional dependency is not installed
    ├── IdentityError (ValueError)             no user, a blank user, a scope that cannot be used
    ├── StorageError                           the database said no
    │   ├── StorageUnavailableError (OSError)  cannot be opened or written: missing, read-only, full, not a folder
    │   ├── StorageBusyError (TimeoutError)    another process held the write lock for too long
    │   ├── SchemaVersionError                 written by a newer version of this package
    │   ├── CorruptionError                    stored bytes do not add up
    │   └── StorageClosedError (RuntimeError)  used after close()
    ├── StoreError                             FaissStore
    │   ├── NamespaceError (InvalidNamespaceError)  a namespace LangGraph would refuse
    │   ├── ItemValueError (ValueError)        a value or key that cannot be stored
    │   ├── FilterError (ValueError)           a filter with an unknown operator or an unusable operand
    │   └── RetrievalError (RuntimeError)      every leg failed
    ├── EmbeddingError (RuntimeError)          the embedder failed, or answered something unusable
    │   └── EmbeddingTimeoutError (TimeoutError)
    ├── WindowError
    │   └── WindowOverflowError (ValueError)   the request cannot be made to fit
    ├── SummaryError
    │   ├── SummarizerError (RuntimeError)     no valid text came back
    │   └── StaleSummaryError (RuntimeError)   on_stale="raise"
    ├── RecordError (ValueError)               stored or given data is not a record of ours
    ├── NotFoundError (KeyError)               unknown, or not yours: the same answer
    ├── RefusedError (ValueError)              a rule refused to keep this; `reason` says which
    ├── TurnError
    │   ├── TurnConflictError (ValueError)     same idempotency key, other content
    │   └── TurnInProgressError (TimeoutError) another worker runs this turn
    ├── ThreadErasedError (RuntimeError)       a late write to an erased thread
    └── RecordingError (ValueError)            a recorded conversation that cannot be read or replayed

Messages say what happened, the offending value and what to do. They carry no user text, memory text or key material.
"""

from __future__ import annotations

from collections.abc import Mapping

from langgraph.store.base import InvalidNamespaceError


class LangMemHarnessError(Exception):
    """Base of every error of this package."""


class ConfigurationError(LangMemHarnessError, ValueError):
    """A setting or argument that cannot work; raised when it is given, not when it is first used."""


class MissingExtraError(ConfigurationError, ImportError):
    """An optional dependency is not installed.

    Attributes:
        extra: Name of the extra to install.
    """

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{feature} needs the extra {extra!r}: pip install 'langmem-harness[{extra}]'")


class IdentityError(LangMemHarnessError, ValueError):
    """The runtime gave no usable identity. There is no default user."""


class StorageError(LangMemHarnessError):
    """The database could not do what was asked; nothing was half done."""


class StorageUnavailableError(StorageError, OSError):
    """The location cannot be opened or written: missing, read-only, full, or not what it should be."""


class StorageBusyError(StorageError, TimeoutError):
    """Another process or thread held the write lock longer than the busy timeout. Safe to try again."""


class SchemaVersionError(StorageError):
    """The file was written by a newer version of this package.

    Attributes:
        component: Which part of the file (for example ``"store"``).
        found: Version in the file.
        supported: Newest version this package can read.
    """

    def __init__(self, component: str, *, found: int, supported: int) -> None:
        self.component = component
        self.found = found
        self.supported = supported
        super().__init__(
            f"the {component} tables have schema version {found}, this package reads up to {supported}: "
            "upgrade langmem-harness; nothing was changed"
        )


class CorruptionError(StorageError):
    """Stored bytes do not add up."""


class StorageClosedError(StorageError, RuntimeError):
    """The object was used after ``close()``."""


class StoreError(LangMemHarnessError):
    """Base of the errors of `FaissStore` that are about the call, not the database."""


class NamespaceError(StoreError, InvalidNamespaceError):
    """A namespace that is empty, reserved, or has labels LangGraph does not allow."""


class ItemValueError(StoreError, ValueError):
    """A key or value that cannot be stored."""


class FilterError(StoreError, ValueError):
    """A filter with an unknown operator or an operand that cannot be compared."""


class RetrievalError(StoreError, RuntimeError):
    """No retrieval leg could answer."""


class EmbeddingError(LangMemHarnessError, RuntimeError):
    """The embedder failed, or its answer has the wrong shape or numbers that are not finite."""


class EmbeddingTimeoutError(EmbeddingError, TimeoutError):
    """The embedder did not answer in time."""


class WindowError(LangMemHarnessError):
    """Base of the errors about the model's context window."""


class WindowOverflowError(WindowError, ValueError):
    """The request is over the hard limit and nothing more may be left out.

    Attributes:
        request_tokens: Estimated size of the smallest legal request.
        limit_tokens: The hard limit.
    """

    def __init__(self, *, request_tokens: int, limit_tokens: int) -> None:
        self.request_tokens = request_tokens
        self.limit_tokens = limit_tokens
        super().__init__(
            f"the smallest legal request is {request_tokens} tokens, the limit is {limit_tokens}: "
            "shorten the newest message, offload tool output, or use a model with a larger window"
        )


class SummaryError(LangMemHarnessError):
    """Base of the errors about summaries."""


class SummarizerError(SummaryError, RuntimeError):
    """The summarizer gave no valid text; no record was made.

    Attributes:
        reason: Short name of what was wrong, without user text; the name of this class when nobody gave one.
        attempts: How often a model was asked; 0 or more.
        usage: ``input_tokens``, ``output_tokens``, ``cached_tokens`` of these attempts, as far as they were reported:
            they are paid for too.
    """

    def __init__(
        self, message: str, *, reason: str = "", attempts: int = 1, usage: Mapping[str, int] | None = None
    ) -> None:
        self.reason = reason or type(self).__name__
        self.attempts = attempts
        self.usage = dict(usage or {})
        super().__init__(message)


class StaleSummaryError(SummaryError, RuntimeError):
    """A summary is stale and the policy says to raise."""


class RecordError(LangMemHarnessError, ValueError):
    """Data that should be one of our records is not."""


class NotFoundError(LangMemHarnessError, KeyError):
    """Unknown, or not visible in this scope: the answer is the same."""

    def __str__(self) -> str:  # KeyError shows the repr of its argument
        return str(self.args[0]) if self.args else "not found"


class RefusedError(LangMemHarnessError, ValueError):
    """A rule refused to keep this.

    Attributes:
        reason: Machine-readable name of the rule.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        self.reason = reason
        super().__init__(message)


class TurnError(LangMemHarnessError):
    """Base of the errors about turns."""


class TurnConflictError(TurnError, ValueError):
    """The idempotency key is taken by other content."""


class TurnInProgressError(TurnError, TimeoutError):
    """Another worker runs this turn and did not finish in time."""


class ThreadErasedError(LangMemHarnessError, RuntimeError):
    """A write came in after the thread was erased."""


class RecordingError(LangMemHarnessError, ValueError):
    """A recorded conversation that cannot be read or replayed.

    Attributes:
        source: File (or other name) it came from.
        position: Where in it, in words (``"conversation 3, message 7"``).
        reason: What is wrong.
    """

    def __init__(self, source: str, position: str, reason: str) -> None:
        self.source = source
        self.position = position
        self.reason = reason
        super().__init__(f"{source}: {position}: {reason}")
