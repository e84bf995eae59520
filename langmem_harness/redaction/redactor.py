"""What happens to what was found: policy per kind, texts, values and messages."""

from __future__ import annotations

import bisect
import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from langchain_core.messages import BaseMessage

from langmem_harness.errors import ConfigurationError, RefusedError
from langmem_harness.redaction.detectors import Detector, Finding
from langmem_harness.redaction.patterns import DEFAULT_DETECTORS

Action = Literal["redact", "mask", "hash", "block", "allow"]
MessageT = TypeVar("MessageT", bound=BaseMessage)

_PLACEHOLDER = re.compile(r"\[REDACTED_[A-Z0-9_]{1,40}\]|\[[A-Z0-9_]{1,40}#[0-9a-f]{16}\]|•{4,}[^\s•]{0,4}")
_SECRET_KEY_NAME = re.compile(
    r"(?:^|[_-])(?:pass(?:word|wd|phrase|code)|pwd|secret|token|api[_-]?key|private[_-]?key|access[_-]?key|credentials?)$",
    re.IGNORECASE,
)
_PATIENT_PASSES = 4
"""Passes over a text in which every value of a row without gaps gets its own replacement."""

_MESSAGE_PARTS = (
    "content",
    "name",
    "additional_kwargs",
    "response_metadata",
    "tool_calls",
    "invalid_tool_calls",
    "tool_call_chunks",
    "artifact",
)
_MEDIA = re.compile(
    r"data:[\w.+-]+/[\w.+-]+(?:;[\w=.+-]+)*;base64,[A-Za-z0-9+/=_-]*+"
    r"|(?:[A-Za-z0-9+/]{4}){128,}+[A-Za-z0-9+/]{0,3}={0,2}"
)
_MEDIA_KEYS = frozenset({"data", "base64", "bytes", "image_url", "file_data", "input_audio"})
_MASK_SHOWS = 4
_MASK_NEEDS = 12


class Redaction(NamedTuple):
    """A text after redaction.

    Attributes:
        text: With every finding replaced as the policy says.
        findings: Number of replaced findings by kind; allowed ones are not counted.
    """

    text: str
    findings: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class RedactionPolicy:
    """What to do with each kind.

    ``"redact"`` writes ``[REDACTED_EMAIL]``; ``"mask"`` keeps the last four characters of values of twelve and more;
    ``"hash"`` writes a pseudonym that is the same for the same value under one key (``[EMAIL#3f1c…]``); ``"block"``
    refuses the whole text; ``"allow"`` leaves it.

    Attributes:
        actions: Action by kind.
        default: Action for kinds that are not in `actions`.
        hash_key: Secret for ``"hash"``, 16 bytes or more; never written anywhere.

    Raises:
        ConfigurationError: An unknown action, or ``"hash"`` without a usable key.
    """

    actions: Mapping[str, Action] = field(default_factory=dict)
    default: Action = "redact"
    hash_key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for action in (self.default, *self.actions.values()):
            if action not in get_args(Action):
                raise ConfigurationError(f"unknown action {action!r}; known are {', '.join(get_args(Action))}")
        if "hash" in (self.default, *self.actions.values()) and len(self.hash_key or b"") < 16:
            raise ConfigurationError("the action 'hash' needs hash_key of 16 bytes or more")

    def action_for(self, kind: str) -> Action:
        """The action for a kind."""
        return self.actions.get(kind, self.default)


class Redactor:
    """Takes secrets and personal data out of texts, JSON values and messages.

    Deterministic and idempotent: redacting again changes nothing, and no detector fires on a replacement. Linear in the
    length of the text. Safe to share between threads. What was found is reported by kind and number, never by value.

    Args:
        policy: What to do with each kind; by default everything found is redacted.
        detectors: Who looks; earlier ones win where findings overlap.

    Raises:
        ConfigurationError: The policy names a kind that no detector reports.

    Example:
        >>> Redactor().redact("write to ada@example.org").text
        'write to [REDACTED_EMAIL]'
    """

    def __init__(
        self, policy: RedactionPolicy | None = None, *, detectors: Sequence[Detector] = DEFAULT_DETECTORS
    ) -> None:
        self.policy = policy or RedactionPolicy()
        self._detectors = tuple(detectors)
        unknown = self.policy.actions.keys() - self.kinds
        if unknown:
            raise ConfigurationError(f"no detector reports {sorted(unknown)!r}; known kinds are {sorted(self.kinds)}")

    @property
    def kinds(self) -> frozenset[str]:
        """Every kind the detectors can report."""
        return frozenset().union(*(detector.kinds for detector in self._detectors))

    def find(self, text: str) -> list[Finding]:
        """Findings that do not overlap, in the order of the text; allowed kinds are left out."""
        taken = _Intervals((match.start(), match.end()) for match in _PLACEHOLDER.finditer(text))
        found: list[Finding] = []
        for detector in self._detectors:
            if all(self.policy.action_for(kind) == "allow" for kind in detector.kinds):
                continue
            found.extend(
                finding
                for finding in detector.find(text)
                if self.policy.action_for(finding.kind) != "allow" and taken.add(finding.start, finding.end)
            )
        return sorted(found, key=lambda finding: finding.start)

    def redact(self, text: str) -> Redaction:
        """Replace every finding.

        Raises:
            RefusedError: A kind whose action is ``"block"`` was found; `reason` is ``"contains_<kind>"``.
        """
        counts: Counter[str] = Counter()
        passes = 0
        while found := self.find(text):
            passes += 1
            counts.update(finding.kind for finding in found)
            # What stood beside a finding has other neighbors now and may have become one itself, so look once more. In
            # a row of values without a gap, each hidden by the one before, that would take a pass for each: there, the
            # rest of the line goes.
            text = self._replaced(text, found, to_line_end=passes >= _PATIENT_PASSES)
        return Redaction(text, dict(counts))

    def _replaced(self, text: str, found: Sequence[Finding], *, to_line_end: bool) -> str:
        pieces: list[str] = []
        position = 0
        for finding in found:
            if finding.start < position:
                continue  # went with the one before
            end = finding.end
            if to_line_end:
                line_end = text.find("\n", end)
                end = len(text) if line_end == -1 else line_end
            pieces.append(text[position : finding.start])
            pieces.append(self._replacement(finding.kind, text[finding.start : end]))
            position = end
        pieces.append(text[position:])
        return "".join(pieces)

    def redact_value(self, value: Any) -> tuple[Any, Mapping[str, int]]:
        """Redact every string inside a JSON-like value; the shape stays, the input is not changed.

        A string under a key that names a secret (``password``, ``api_key``, ...) is replaced whole. Inline media
        (base64 under ``data``, ``data:`` URLs) is not text and passes through.
        """
        counts: Counter[str] = Counter()
        return self._walk(value, None, counts), dict(counts)

    def redact_message(self, message: MessageT) -> tuple[MessageT, Mapping[str, int]]:
        """A copy of the message with content, name, tool calls, artifact and metadata redacted.

        Ids, roles, block types and every other part keep their values.
        """
        counts: Counter[str] = Counter()
        update: dict[str, Any] = {}
        for name in _MESSAGE_PARTS:
            value = getattr(message, name, None)
            if value:
                update[name] = self._walk(value, None, counts)
        return (message.model_copy(update=update) if counts else message), dict(counts)

    def _walk(self, value: Any, key: str | None, counts: Counter[str]) -> Any:
        if isinstance(value, str):
            if key in _MEDIA_KEYS and _MEDIA.fullmatch(value):
                return value
            if key is not None and value and _SECRET_KEY_NAME.search(key) and not _PLACEHOLDER.fullmatch(value):
                kind = "password" if "pass" in key.lower() or "pwd" in key.lower() else "api_key"
                if kind in self.kinds and self.policy.action_for(kind) != "allow":
                    counts[kind] += 1
                    return self._replacement(kind, value)
            redacted = self.redact(value)
            counts.update(redacted.findings)
            return redacted.text
        if isinstance(value, Mapping):
            walked: dict[Any, Any] = {}
            for name, inner in value.items():
                shown = self._walk(name, None, counts) if isinstance(name, str) else name
                while shown in walked:  # two names may look the same now, and both values are kept
                    shown += "'"
                walked[shown] = self._walk(inner, str(name), counts)
            return walked
        if isinstance(value, list):
            return [self._walk(inner, key, counts) for inner in value]
        if isinstance(value, tuple):
            return tuple(self._walk(inner, key, counts) for inner in value)
        return value

    def _replacement(self, kind: str, value: str) -> str:
        action = self.policy.action_for(kind)
        if action == "block":
            raise RefusedError(f"the text contains a {kind}, which the policy blocks", reason=f"contains_{kind}")
        if action == "mask":
            shown = value[-_MASK_SHOWS:] if len(value) >= _MASK_NEEDS else ""
            return "••••" + ("" if any(character.isspace() for character in shown) else shown)
        if action == "hash":
            key = self.policy.hash_key or b""
            digest = hmac.new(key, f"{kind}\0{value}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
            return f"[{kind.upper()}#{digest[:16]}]"
        return f"[REDACTED_{kind.upper()}]"


class _Intervals:
    """Half-open intervals that do not overlap, in order."""

    def __init__(self, intervals: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in intervals:
            self._starts.append(start)
            self._ends.append(end)

    def add(self, start: int, end: int) -> bool:
        """Take the interval unless it is empty or touches one that is taken; says whether it was taken."""
        position = bisect.bisect_left(self._starts, end)
        if start >= end or (position > 0 and self._ends[position - 1] > start):
            return False
        self._starts.insert(position, start)
        self._ends.insert(position, end)
        return True
