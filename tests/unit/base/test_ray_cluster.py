"""What is told of a cluster's errors."""

from syntaxformer.base.ray_cluster import reason


def test_of_rays_errors_only_the_error_is_told():
    error = ValueError(
        "ray::MapWorker() (pid=7)\n  File x, line 3\nsyntaxformer.base.errors.DataError: /a: no space left.\n"
    )
    assert reason(error) == "syntaxformer.base.errors.DataError: /a: no space left."
    assert reason(ConnectionError("no cluster\n there")) == "no cluster there."
