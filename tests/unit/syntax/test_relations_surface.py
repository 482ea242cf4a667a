from __future__ import annotations

import syntaxformer.syntax as relations


def test_all_is_the_public_surface():
    assert len(relations.__all__) == len(set(relations.__all__))
    assert all(hasattr(relations, name) for name in relations.__all__)
