"""Microsoft Presidio behind the `Detector` protocol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langmem_harness.errors import MissingExtraError
from langmem_harness.redaction.detectors import Finding

DEFAULT_ENTITIES: Mapping[str, str] = {
    "PERSON": "person",
    "LOCATION": "location",
    "NRP": "nationality_religion_politics",
    "MEDICAL_LICENSE": "medical_license",
}
"""Presidio's entities that need a language model, and our names for them; `DEFAULT_DETECTORS` covers the rest."""


class PresidioDetector:
    """Finds names and places with Presidio's analyzer (extra ``presidio``, and a spaCy model of your choice).

    Put it behind the default detectors: ``Redactor(detectors=[*DEFAULT_DETECTORS, PresidioDetector()])``.

    Args:
        analyzer: A ``presidio_analyzer.AnalyzerEngine``; by default one with Presidio's own settings.
        entities: Presidio's entity names and the kinds they are reported as.
        language: ISO 639-1 code the analyzer was set up for.
        threshold: Smallest score that counts, 0.0 to 1.0, inclusive.

    Raises:
        MissingExtraError: No analyzer was given and Presidio is not installed.
    """

    def __init__(
        self,
        analyzer: Any = None,
        *,
        entities: Mapping[str, str] = DEFAULT_ENTITIES,
        language: str = "en",
        threshold: float = 0.5,
    ) -> None:
        if analyzer is None:
            try:
                from presidio_analyzer import AnalyzerEngine
            except ImportError as error:
                raise MissingExtraError("PresidioDetector", "presidio") from error
            analyzer = AnalyzerEngine()
        self._analyzer = analyzer
        self._entities = dict(entities)
        self._language = language
        self._threshold = threshold

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(self._entities.values())

    def find(self, text: str) -> Iterator[Finding]:
        results: Sequence[Any] = self._analyzer.analyze(
            text=text, entities=list(self._entities), language=self._language, score_threshold=self._threshold
        )
        for result in results:
            yield Finding(self._entities[result.entity_type], result.start, result.end)
