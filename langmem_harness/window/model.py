"""What is known of a model: its name, and the size of its context window. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

FALLBACK_WINDOW_TOKENS: Final = 32_000
"""Window assumed when neither a setting nor the model's profile says how large it is: small, because a window that is
taken for too small works and one that is taken for too large does not."""


def profile_window_tokens(model: Any) -> int | None:
    """How many tokens the model reads at most, by its LangChain profile; None when that does not say."""
    profile = getattr(model, "profile", None)
    window = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
    return window if isinstance(window, int) and window > 0 else None


def model_name(model: Any) -> str:
    """The name the provider knows the model by; for models without one, the name of their kind."""
    for attribute in ("model_name", "model", "model_id", "deployment_name"):
        name = getattr(model, attribute, None)
        if isinstance(name, str) and name:
            return name
    kind = getattr(model, "_llm_type", None)
    return kind if isinstance(kind, str) and kind else type(model).__qualname__
