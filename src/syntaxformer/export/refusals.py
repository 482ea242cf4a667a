"""What CTranslate2 has no way to compute: each by its name, with the reason."""

from __future__ import annotations

from syntaxformer.models import SyntaxTransformerConfig

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
    found = {kind, *(name for name in REASONS if getattr(config, name, None) is not None)}
    return [
        f"{name}: expected a model that CTranslate2 can compute, got one with {reason}. "
        "Translate with the trained folder."
        for name, reason in REASONS.items()
        if name in found
    ]
