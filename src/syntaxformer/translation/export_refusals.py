"""What CTranslate2 has no way to compute: each by its name, with the reason."""

from __future__ import annotations

from typing import Any

from syntaxformer.translation.model import SyntaxTransformerConfig

__all__ = ["why_not"]

REASONS = {
    "pos_encoder": "its second encoder over tags",
    "lisa": "its biaffine attention head",
    "masks": "attention over tree relations",
    "relation_bias": "attention biased by tree relations",
}
"""Name of what a model may have → what CTranslate2 lacks for it."""


def why_not(config: SyntaxTransformerConfig) -> list[str]:
    """Reasons why a model cannot be exported, one sentence each; none if it can."""
    kind = (config.infusion or {}).get("kind", "none")
    found = {kind, *(name for name in REASONS if _has_any(getattr(config, name, None)))}
    return [
        f"{name}: expected a model that CTranslate2 can compute, got one with {reason}. "
        "Translate with the trained folder."
        for name, reason in REASONS.items()
        if name in found
    ]


def _has_any(section: dict[str, Any] | None) -> bool:
    """Whether a section is in some layer."""
    return section is not None and section.get("layers") not in ((), [])
