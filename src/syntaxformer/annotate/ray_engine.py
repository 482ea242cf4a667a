"""Annotation by Ray Data: a pool of actors that each load the annotator once and take shard after shard.

Only the driver is here; what is done to a shard is in `shards`. Ray restarts actors that die and gives their
shard to another; a shard that was half written leaves nothing.
"""

# pyright: basic
# (Ray Data has no complete types.)

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import cached_property
from typing import Any

from syntaxformer.annotate.annotator import Annotator
from syntaxformer.annotate.registry import load_annotator
from syntaxformer.annotate.shards import Engine, Shard, annotate_shard
from syntaxformer.base.errors import SyntaxformerError
from syntaxformer.base.ray_cluster import connect, import_ray, reason

__all__ = ["ray_engine"]


def ray_engine(annotator: str, n_workers: int, address: str | None = None) -> Engine:
    """Return the engine that works on a Ray cluster.

    Args:
        annotator: Name that each actor loads, with the backend's options; it is not written to the disk.
        n_workers: Actors, each with one processor.
        address: Of a running cluster, "auto" or "ray://host:10001"; None starts one here, for this job.

    Raises:
        BackendMissingError: Ray is not installed.
        SyntaxformerError: While it works: there is no cluster at the address, or it cannot go on.
    """
    ray = import_ray("ray.data")
    return lambda shards: _run(ray, shards, annotator, n_workers, address)


def _run(
    ray: Any, shards: Sequence[Shard], annotator: str, n_workers: int, address: str | None
) -> Iterator[dict[str, Any]]:
    started = connect(address, n_workers + 1)
    try:
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        rows = [{"shard": json.dumps(asdict(shard))} for shard in shards]
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        # Shards are handed out one by one, and none before an actor is free to take it.
        dataset = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
            _Worker,
            fn_constructor_args=(annotator,),
            compute=ray.data.ActorPoolStrategy(
                size=min(n_workers, len(rows)), max_tasks_in_flight_per_actor=1
            ),
            num_cpus=1,
        )
        # Ray tells of dead workers on stdout, which is for results.
        with redirect_stdout(sys.stderr):
            for row in dataset.iter_rows():
                yield json.loads(row["record"])
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise SyntaxformerError(
            f"ray: expected the cluster to work, got: {reason(error)} What is done is kept; run the same "
            "command again."
        ) from error
    finally:
        if started and ray.is_initialized():
            ray.shutdown()


class _Worker:
    """An actor; its annotator is loaded with the first shard, so that what fails then is that shard."""

    def __init__(self, annotator: str) -> None:
        self.name = annotator

    @cached_property
    def annotator(self) -> Annotator:
        return load_annotator(self.name)

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        shard = Shard(**json.loads(row["shard"]))
        return {"record": json.dumps(annotate_shard(shard, lambda: self.annotator))}
