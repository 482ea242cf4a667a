#!/usr/bin/env python3
"""Speed of NMT toolkits side by side on one CPU machine.  Standard library only.

    run.py all DATA_DIR              setup, prepare, models, measure, report
    run.py setup                     make the missing venvs from PyPI
    run.py prepare DATA_DIR          cut the corpus once (prepare.py)
    run.py models DATA_DIR           3-update models to translate with
    run.py measure [--reps 2] [--seconds 60] [--only NAME ...]
    run.py report                    tables from the results, Markdown on stdout

Environment: NMTBENCH_HOME    work folder           (default ${TMPDIR:-/tmp}/nmtbench)
             NMTBENCH_VENVS   folder of the venvs   (default ${TMPDIR:-/tmp}; venv-onmt, venv-sockeye, ...)
             NMTBENCH_VENV_<KIT>  one venv elsewhere
             NMTBENCH_THREADS threads for each job  (default 2)
"""
import argparse, datetime, json, os, pathlib, shutil, statistics, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
TMP = pathlib.Path(os.environ.get("TMPDIR", "/tmp"))
HOME = pathlib.Path(os.environ.get("NMTBENCH_HOME", TMP / "nmtbench"))
VENVS = pathlib.Path(os.environ.get("NMTBENCH_VENVS", TMP))
THREADS = os.environ.get("NMTBENCH_THREADS", "2")
DATA, MODELS, RESULTS = HOME / "data", HOME / "models", HOME / "results"

D, LAYERS, HEADS, FFN, DROP, SMOOTH, TOKENS = 512, 3, 8, 2048, 0.1, 0.1, 2000
BEAM, BATCH, STEPS = 5, 32, 16                     # translation; STEPS is close to the reference length + </s>
WARM_SECONDS, WARM_UPDATES = 12, 4

TORCH = ["torch==2.13.0", "numpy<2", "setuptools", "wheel"]
VENV = {  # kit: list of pip command lines
    "onmt": [TORCH, ["OpenNMT-py==3.5.1", "--no-deps"],
             ["configargparse", "ctranslate2>=4,<5", "pyonmttok", "pyyaml", "sacrebleu", "six", "tensorboard", "spacy", "rapidfuzz",
              "pyahocorasick", "flask", "waitress", "fasttext-wheel", "numpy<2"]],
    "sockeye": [TORCH, ["sockeye==3.1.34", "--no-deps"], ["pyyaml", "sacrebleu"]],
    "joeynmt": [TORCH, ["joeynmt==2.3.0", "--no-deps"],
                ["pyyaml", "sacrebleu", "sacremoses", "sentencepiece", "subword-nmt", "matplotlib", "seaborn", "datasets", "tensorboard",
                 "packaging", "pandas", "protobuf", "importlib_metadata"]],
    "ct2": [["ctranslate2==4.8.5"]],
    "bare": [["torch==2.13.0", "numpy", "tokenizers"]],
}
# Each toolkit counts a "2,000 token" batch in its own way; these settings give about 2,000 non-padding target
# tokens for each update on Multi30k (the report shows the mean that was reached).
BATCH_SETTING = {"onmt": 2300, "sockeye": 2000, "joeynmt": 4600}


def python(kit):
    if kit == "ours" and "NMTBENCH_VENV_OURS" not in os.environ:
        return sys.executable                      # syntaxformer is installed where this runs
    return str(pathlib.Path(os.environ.get(f"NMTBENCH_VENV_{kit.upper()}", VENVS / f"venv-{kit}")) / "bin" / "python")


def env():
    e = dict(os.environ, OMP_NUM_THREADS=THREADS, MKL_NUM_THREADS=THREADS, TOKENIZERS_PARALLELISM="false", CUDA_VISIBLE_DEVICES="",
             TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1", PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1")
    return e


def dump(path, obj):                               # JSON is YAML: one writer for OpenNMT-py and JoeyNMT
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(obj, indent=1))
    return str(path)


# ============================================================ one block for each toolkit
# train_X(config, folder, updates): arguments of the toolkit's own trainer; updates=None means "until the probe stops it".
# translate_X(folder): arguments of its own translator for the model that train_X(…, updates=3) left in `folder`.

def train_onmt(config, folder, updates=None):
    feat = config == "B"
    src = "en.feat" if feat else "en"
    cfg = {
        "src_vocab": f"{DATA}/vocab.txt", "tgt_vocab": f"{DATA}/vocab.txt", "share_vocab": True, "overwrite": True,
        "data": {"corpus_1": {"path_src": f"{DATA}/train.{src}", "path_tgt": f"{DATA}/train.de", "transforms": [], "weight": 1},
                 "valid": {"path_src": f"{DATA}/val.{src}", "path_tgt": f"{DATA}/val.de", "transforms": []}},
        "encoder_type": "transformer", "decoder_type": "transformer", "position_encoding": True, "layers": LAYERS, "heads": HEADS,
        "hidden_size": D, "transformer_ff": FFN, "dropout": [DROP], "attention_dropout": [DROP], "label_smoothing": SMOOTH,
        "share_decoder_embeddings": True, "batch_type": "tokens", "batch_size": BATCH_SETTING["onmt"], "normalization": "tokens",
        "bucket_size": 29000, "num_workers": 0, "world_size": 1, "optim": "adam", "adam_beta2": 0.98, "learning_rate": 0.0003,
        "train_steps": updates or 10**6, "valid_steps": 10**6, "save_checkpoint_steps": updates or 10**6, "report_every": 20,
        "save_model": f"{folder}/m", "seed": 1,
    }
    if feat:                                       # one width for all features: 1 feature of 20
        for part in cfg["data"].values():          # demanded for features; without joiner marks it maps them one to one
            part["transforms"] = ["inferfeats"]
        cfg.update(reversible_tokenization="joiner", n_src_feats=1, feat_merge="concat", feat_vec_size=20, src_word_vec_size=D - 20, tgt_word_vec_size=D)
    else:
        cfg.update(word_vec_size=D, share_embeddings=True)
    return ["-config", dump(folder / "config.yaml", cfg)]


def translate_onmt(folder):
    return ["-model", str(folder / "m_step_3.pt"), "-src", f"{DATA}/test2016.en", "-output", str(folder / "hyp"),
            "-beam_size", str(BEAM), "-batch_size", str(BATCH), "-batch_type", "sents", "-gpu", "-1",
            "-min_length", str(STEPS), "-max_length", str(STEPS), "-max_length_ratio", "0"]


def train_sockeye(config, folder, updates=None):
    a = ["-s", f"{DATA}/train.en", "-t", f"{DATA}/train.de", "-vs", f"{DATA}/val.en", "-vt", f"{DATA}/val.de",
         "--source-vocab", f"{DATA}/vocab.sockeye.json", "--target-vocab", f"{DATA}/vocab.sockeye.json", "--shared-vocab",
         "--num-layers", str(LAYERS), "--transformer-attention-heads", str(HEADS), "--transformer-feed-forward-num-hidden", str(FFN),
         "--transformer-dropout-attention", str(DROP), "--transformer-dropout-act", str(DROP), "--transformer-dropout-prepost", str(DROP),
         "--label-smoothing", str(SMOOTH), "--batch-type", "word", "--batch-size", str(BATCH_SETTING["sockeye"]),
         "--optimizer", "adam", "--initial-learning-rate", "0.0003", "--max-seq-len", "100", "--use-cpu", "--decode-and-evaluate", "0",
         "--checkpoint-interval", str(updates or 10**6), "--max-updates", str(updates or 10**6), "--seed", "1", "--overwrite-output",
         "-o", str(folder / "model")]              # a folder of its own: --overwrite-output deletes it first
    if config == "B":
        f = [f"{DATA}/train.en.f{k}" for k in range(3)]
        v = [f"{DATA}/val.en.f{k}" for k in range(3)]
        return a + ["-sf", *f, "-vsf", *v, "--source-factors-num-embed", "12", "4", "4", "--source-factors-combine", "concat",
                    "--num-embed", f"{D - 20}:{D}", "--transformer-model-size", f"{D - 20}:{D}", "--weight-tying-type", "trg_softmax"]
    return a + ["--num-embed", str(D), "--transformer-model-size", str(D), "--weight-tying-type", "src_trg_softmax"]


def translate_sockeye(folder):
    return ["-m", str(folder / "model"), "-i", f"{DATA}/test2016.en", "-o", str(folder / "hyp"), "--use-cpu", "--beam-size", str(BEAM),
            "--batch-size", str(BATCH), "--chunk-size", "1000", "--max-output-length", str(STEPS)]


def train_joeynmt(config, folder, updates=None):
    small = folder / "val32"                       # validation is forced before a checkpoint: keep it short
    folder.mkdir(parents=True, exist_ok=True)
    for l in ("en", "de"):
        small.with_suffix("." + l).write_text("".join((DATA / f"val.{l}").read_text(encoding="utf-8").splitlines(True)[:32]), encoding="utf-8")
    side = {"max_length": 100, "level": "word", "voc_file": f"{DATA}/vocab.joey"}
    part = {"type": "transformer", "num_layers": LAYERS, "num_heads": HEADS, "hidden_size": D, "ff_size": FFN, "dropout": DROP,
            "layer_norm": "pre", "embeddings": {"embedding_dim": D, "scale": True, "dropout": DROP}}
    cfg = {
        "name": "bench", "joeynmt_version": "2.3.0", "model_dir": str(folder / "model"), "use_cuda": False, "random_seed": 1, "num_workers": 0,
        "data": {"train": f"{DATA}/train", "dev": str(small), "dataset_type": "plain", "src": {"lang": "en", **side}, "trg": {"lang": "de", **side},
                 "special_symbols": {"unk_token": "<unk>", "unk_id": 0, "pad_token": "<pad>", "pad_id": 1, "bos_token": "<s>", "bos_id": 2,
                                     "eos_token": "</s>", "eos_id": 3}},
        "testing": {"beam_size": BEAM, "batch_size": BATCH, "batch_type": "sentence", "max_output_length": STEPS, "eval_metrics": ["bleu"]},
        "training": {"optimizer": "adam", "adam_betas": [0.9, 0.98], "scheduling": "warmupinversesquareroot", "learning_rate_warmup": 100,
                     "learning_rate": 0.0003, "loss": "crossentropy", "label_smoothing": SMOOTH, "normalization": "tokens",
                     "batch_size": BATCH_SETTING["joeynmt"], "batch_type": "token", "epochs": 1000, "updates": updates or 10**6,
                     "validation_freq": updates or 10**6, "logging_freq": 1 if updates else 20, "overwrite": True, "keep_best_ckpts": 1},
        "model": {"initializer": "xavier_uniform", "tied_embeddings": True, "tied_softmax": True, "encoder": part, "decoder": part},
    }
    return [dump(folder / "config.yaml", cfg), "--skip-test"]


def translate_joeynmt(folder):
    return [str(folder / "config.yaml")]           # reads the source from standard input


KITS = ("onmt", "sockeye", "joeynmt")              # toolkits that probe.py drives


def jobs():
    """name -> command line with OUT for the result file, SECONDS for the length.  A new toolkit: add its lines here."""
    w = [str(WARM_SECONDS), str(WARM_UPDATES)]
    probe, bare = str(HERE / "probe.py"), [python("bare"), str(HERE / "bare.py")]
    t = bare + ["train", str(DATA), "OUT", "SECONDS", *w]
    j = {"gemm": bare + ["gemm", "OUT"],
         "A train bare-fp32": t, "A train bare-bf16": t + ["--bf16"]}
    for k in KITS:
        j[f"A train {k}"] = lambda f, k=k: [python(k), probe, "train", k, "OUT", "SECONDS", *w, "--", *globals()["train_" + k]("A", f)]
    j["B train bare-fp32"] = t + ["--factors"]
    for k in ("onmt", "sockeye"):                  # JoeyNMT has no source factors
        j[f"B train {k}"] = lambda f, k=k: [python(k), probe, "train", k, "OUT", "SECONDS", *w, "--", *globals()["train_" + k]("B", f)]
    for k in KITS:
        j[f"A translate {k}"] = lambda f, k=k: [python(k), probe, "translate", k, "OUT", str(STEPS), "--", *globals()["translate_" + k](MODELS / k)]
    ours = [python("ours"), str(HERE / "ours.py")]
    for precision in ("fp32", "auto"):
        one = [*ours, "train", str(DATA), "OUT", "SECONDS", *w, "--precision", precision]
        j[f"A train ours-{precision}"], j[f"B train ours-{precision}"] = one, [*one, "--factors"]
    for folder in ("pytorch", "int8"):             # with tags: ours reads raw text
        j[f"B translate ours-{folder}"] = [*ours, "translate", str(MODELS / "ours" / folder), "OUT", str(STEPS)]
    for kind in ("float32", "int8"):
        j[f"A translate ct2-{kind}"] = [python("ct2"), str(HERE / "ct2_random.py"), str(DATA), str(MODELS / "ct2"), "OUT", str(STEPS), kind]
    return j
# ============================================================


def call(cmd, log, stdin=None):
    with open(log, "wb") as f, open(stdin or os.devnull, "rb") as i:
        r = subprocess.run(cmd, stdout=f, stderr=subprocess.STDOUT, stdin=i, env=env(), cwd=HOME)
    if r.returncode:
        tail = pathlib.Path(log).read_text(errors="replace").splitlines()[-15:]
        raise SystemExit(f"{log}: exit status {r.returncode}\n" + "\n".join(tail))


def setup():
    for kit, steps in VENV.items():
        if pathlib.Path(python(kit)).exists():
            continue
        folder = pathlib.Path(python(kit)).parent.parent
        print("making", folder, file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, stdout=sys.stderr)
        for s in steps:
            subprocess.run([python(kit), "-m", "pip", "install", "-q", *s], check=True, stdout=sys.stderr)


def prepare(data):
    subprocess.run([python("bare"), str(HERE / "prepare.py"), str(data), str(DATA)], check=True, env=env(), stdout=sys.stderr)


def models(raw):
    ours = [python("ours"), str(HERE / "ours.py"), "model", str(raw), str(MODELS / "ours")]
    MODELS.mkdir(parents=True, exist_ok=True)
    call(ours, MODELS / "ours.log")
    print("model ours", file=sys.stderr)
    for k in KITS:
        folder = MODELS / k
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        args = globals()["train_" + k]("A", folder, updates=3)
        call([python(k), str(HERE / "probe.py"), "plain", k, "--", *args], MODELS / f"{k}.log")
        print("model", k, file=sys.stderr)


def cpu_times():
    v = list(map(int, open("/proc/stat").readline().split()[1:]))
    return sum(v[:8]), v[3] + v[4], v[7]           # all, idle, steal


def busy(seconds=3):
    a = cpu_times()
    time.sleep(seconds)
    b = cpu_times()
    return 1 - (b[1] - a[1]) / max(1, b[0] - a[0])


def control():
    """Speed of the machine right now (about 3 s of work): shared hosts drift, and it does not show as load or steal."""
    out = HOME / "control.json"
    call([python("bare"), str(HERE / "bare.py"), "control", str(out)], HOME / "control.log")
    return json.loads(out.read_text())


def measure(reps, seconds, only, wait, limit):
    RESULTS.mkdir(parents=True, exist_ok=True)
    todo = {n: jobs()[n] for n in only} if only else jobs()
    first = 1 + max((int(p.name[1:3]) for p in RESULTS.glob("r*.json")), default=-1)
    for rep in range(first, first + reps):
        for name, cmd in todo.items():
            stem = f"r{rep:02d}." + name.replace(" ", ".")
            out, folder = RESULTS / (stem + ".json"), HOME / "runs" / stem
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            cmd = cmd(folder) if callable(cmd) else cmd
            cmd = [{"OUT": str(out), "SECONDS": str(seconds)}.get(c, c) for c in cmd]
            t0 = time.time()
            while (b := busy()) > limit:           # something else runs: wait for it
                print(f"{name}: waiting, others use {b:.0%} of the CPUs (--wait, --limit)", file=sys.stderr, flush=True)
                if time.time() - t0 > wait:
                    raise SystemExit(f"machine busy at {b:.0%} before {name!r}")
                time.sleep(15)
            before = control()
            c0, t0 = cpu_times(), time.time()
            out.unlink(missing_ok=True)
            try:
                call(cmd, folder / "log", DATA / "test2016.en" if name == "A translate joeynmt" else None)
            except SystemExit as e:                # one broken toolkit must not cost the others their turn
                print(f"rep {rep} {name}: FAILED\n{e}", file=sys.stderr)
                continue
            c1, t1, r, after = cpu_times(), time.time(), json.loads(out.read_text()), control()
            r.update(name=name, **{k: [v, after[k]] for k, v in before.items()}, rep=rep, wall_s=t1 - t0, busy_before=b, steal=(c1[2] - c0[2]) / (c1[0] - c0[0]),
                     load_after=os.getloadavg()[0], at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"))
            out.write_text(json.dumps(r, indent=1, sort_keys=True))
            rate = r.get("tgt_per_s") or r.get("sents_per_s") or r.get("float32")
            print(f"{r['at']} rep {rep} {name:28s} {rate:9.1f}  ({r['wall_s']:.0f} s, busy before {b:.1%}, steal {r['steal']:.2%}, "
                  f"control {before['control_gflops']:.0f}/{after['control_gflops']:.0f} GFLOP/s, "
                  f"copy {before['control_copy_gbs']:.1f}/{after['control_copy_gbs']:.1f} GB/s)", file=sys.stderr, flush=True)
            shutil.rmtree(folder / "model", ignore_errors=True)


def parameters():
    """Weights, biases and norms of the encoder and the decoder, no embeddings, no output table."""
    lin = lambda i, o: i * o + o
    ffn, norm = lin(D, FFN) + lin(FFN, D), 2 * D
    enc = LAYERS * (4 * lin(D, D) + ffn + 2 * norm) + norm
    return enc, LAYERS * (8 * lin(D, D) + ffn + 3 * norm) + norm


def report():
    rows = json.loads((DATA / "manifest.json").read_text())["rows"]
    enc, dec = parameters()
    by = {}
    for p in sorted(RESULTS.glob("r*.json")):
        r = json.loads(p.read_text())
        by.setdefault(r["name"], []).append(r)
    med = lambda rs, f: statistics.median(f(r) for r in rs)

    def spread(rs, f, digits=0):                   # every run in order, then (max - min) / median
        v = [f(r) for r in rs]
        return f"{', '.join(f'{x:.{digits}f}' for x in v)} ({(max(v) - min(v)) / statistics.median(v):.0%})"
    if "gemm" not in by:
        sys.exit("report: expected a result of the job gemm, found none. Run: run.py measure --reps 1 --only gemm")
    peak = {d: med(by["gemm"], lambda r: r[d]) for d in ("float32", "bfloat16")}
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "?")
    allr = [r for rs in by.values() for r in rs]
    print(f"Machine: {cpu}, {os.cpu_count()} cores, Linux {os.uname().release}, Python {sys.version.split()[0]}; threads for each job: {THREADS}.")
    print(f"Measured {min(r['at'] for r in allr)} to {max(r['at'] for r in allr)}; worst CPU use by others just before a job "
          f"{max(r['busy_before'] for r in allr):.1%}; worst steal during a job {max(r['steal'] for r in allr):.2%}.")
    for k, unit in (("control_gflops", "GFLOP/s of fp32 GEMM"), ("control_copy_gbs", "GB/s of copying")):
        v = [x for r in allr for x in r.get(k, ())]
        if v:
            print(f"Control, 1.5 s before and after {len(v) // 2} of {len(allr)} jobs: {min(v):.1f} to {max(v):.1f} {unit}, median {statistics.median(v):.1f}.")
    print(f"GEMM peak (2 threads, best shape, median of {len(by['gemm'])}): fp32 {peak['float32']:.0f} GFLOP/s, bf16 {peak['bfloat16']:.0f} GFLOP/s.")
    print("By shape, GFLOP/s: " + "; ".join(f"{k} {med(by['gemm'], lambda r: r[k]):.0f}" for k in by["gemm"][0] if "x" in k and k[0] in "fb") + ".")
    print(f"\nFLOP/s = 6 x (P_enc x source tokens/s + (P_dec + d x V) x target tokens/s), P_enc = {enc:,}, P_dec = {dec:,}, d = {D}, V = {rows:,}.\n")
    for c, title in (("A", "A: plain source, d 512"), ("B", "B: source factors, 492 + 20")):
        print(f"### Training, {title}\n")
        print("| system | version | torch | target tok/s (non-pad), median | each run (spread) | updates/s | target tok/update | target fill | source fill "
              "| GFLOP/s useful | % of GEMM peak (own type) | same incl. padding | cores used | peak RSS GB |")
        print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
        flops = lambda r: 6 * (enc * r["src_per_s"] + (dec + D * rows) * r["tgt_per_s"]) / 1e9
        padded = lambda r: 6 * (enc * r["src_per_s"] / r["src_fill"] + (dec + D * rows) * r["tgt_per_s"] / r["tgt_fill"]) / 1e9
        for n, rs in sorted(by.items(), key=lambda x: -med(x[1], lambda r: r.get("tgt_per_s", 0))):
            if n.startswith(c + " train"):
                g = lambda k: med(rs, lambda r: r[k])
                top = peak["bfloat16" if "bf16" in n or rs[0]["version"] == "bf16" else "float32"]
                print(f"| {n[8:]} | {rs[0]['version']} | {rs[0]['torch']} | **{g('tgt_per_s'):.0f}** | {spread(rs, lambda r: r['tgt_per_s'])} "
                      f"| {g('updates_per_s'):.3f} | {g('tgt_per_update'):.0f} | {g('tgt_fill'):.1%} | {g('src_fill'):.1%} | {med(rs, flops):.0f} "
                      f"| {med(rs, flops) / top:.0%} | {med(rs, padded) / top:.0%} | {g('cores_used'):.2f} | {g('rss_gb'):.2f} |")
        print()
    print(f"### Translation of test2016 (1,000 sentences), beam {BEAM}, batch {BATCH}, {STEPS} forced steps\n")
    print("| system | version | source sent/s, median | each run (spread) | output tok/s | seconds | peak RSS GB |")
    print("|---|---|---|---|---|---|---|")
    for n, rs in sorted(by.items(), key=lambda x: -med(x[1], lambda r: r.get("sents_per_s", 0))):
        if " translate " in n:
            g = lambda k: med(rs, lambda r: r[k])
            print(f"| {n[12:]} | {rs[0]['version']} | **{g('sents_per_s'):.2f}** | {spread(rs, lambda r: r['sents_per_s'], 1)} "
                  f"| {g('out_tokens_per_s'):.0f} | {g('seconds'):.1f} | {g('rss_gb'):.2f} |")


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=("all", "setup", "prepare", "models", "measure", "report", "list"))
    ap.add_argument("data", nargs="?")
    ap.add_argument("--reps", type=int, default=2)
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--only", nargs="*", help="job names (run.py list), added as a further repetition")
    ap.add_argument("--wait", type=float, default=900, help="seconds to wait for a quiet machine before a job")
    ap.add_argument("--limit", type=float, default=0.08, help="CPU share used by others that still counts as quiet")
    a = ap.parse_args()
    data = a.data and pathlib.Path(a.data).resolve()     # jobs run in HOME
    if a.what == "list":
        print("\n".join(jobs()))
    if a.what in ("all", "setup"):
        setup()
    if a.what in ("all", "prepare"):
        prepare(data or ap.error("DATA_DIR is missing"))
    if a.what in ("all", "models"):
        models(data or ap.error("DATA_DIR is missing"))
    if a.what in ("all", "measure"):
        measure(a.reps, a.seconds, a.only, a.wait, a.limit)
    if a.what in ("all", "report"):
        report()
