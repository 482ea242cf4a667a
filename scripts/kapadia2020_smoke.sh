#!/usr/bin/env bash
# Every row of Kapadia et al.'s (2020) tables 2 and 3 on IWSLT'14 De-En, trained for a few updates: does each run? One line a row with dev loss,
# seconds, parameters and how many words five test lines became; a row that fails prints its error in place of numbers, and the script ends with 1.
#
#   scripts/kapadia2020_smoke.sh [key.sub=value ...]
#
# STEPS      updates of each row (200)
# D_MODEL    width of the model (512, the paper's); on CPUs 64 does: everything but the width is the recipe's. The rows of table 3
#            have it, half and a quarter of it, as the paper has 512, 256, 128
# ENCODER    folder or hub name of the source's encoder for table 3 (google-bert/bert-base-german-dbmdz-uncased), at least as wide as
#            D_MODEL
# ENCODER_TGT  the same of the target (google-bert/bert-base-uncased, or ENCODER where that is given): one encoder for both sides
#            shows that the rows run, even where it has one language only
# DATA       folder of IWSLT'14 ($SYNTAXFORMER_DATA/iwslt14, else ../shared/data/iwslt14)
# OUT        folder of the runs (a temporary one, deleted at the end)
# More settings go to every row: `data.fraction=0.1 annotation.processes=2`.
set -uo pipefail
STEPS=${STEPS:-200}
D_MODEL=${D_MODEL:-512}
ENCODER_TGT=${ENCODER_TGT:-${ENCODER:-google-bert/bert-base-uncased}}
ENCODER=${ENCODER:-google-bert/bert-base-german-dbmdz-uncased}
DATA=${DATA:-${SYNTAXFORMER_DATA:-../shared/data}/iwslt14}
if [[ -z ${OUT:-} ]]; then
  OUT=$(mktemp -d)
  trap 'rm -rf "$OUT"' EXIT
fi
failed=0
COMMON=(data.dir="$DATA" training.max_steps="$STEPS" training.eval_every="$STEPS" training.tensorboard=false "$@")

parameters() {  # of a model folder: numbers in its weights, tied tables once
  python - "$1" <<'PY'
import json, math, struct, sys
with open(f"{sys.argv[1]}/model.safetensors", "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
print(sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__"))
PY
}

row() {  # name, then settings
  local name=$1 folder="$OUT/$1" width=$D_MODEL
  shift
  if syntaxformer train recipes/iwslt14_de_en.yaml output="$folder" model.d_model="$width" \
      model.d_ff=$((2 * width)) "${COMMON[@]}" "$@" > "$folder.log" 2>&1 &&
    syntaxformer translate "$folder" "$OUT/lines.de" --beam-size 2 -o "$folder.en" >> "$folder.log" 2>&1; then
    python - "$name" "$folder" "$(parameters "$folder")" <<'PY'
import json, sys
name, folder, parameters = sys.argv[1:]
lines = open(f"{folder}.en", encoding="utf-8").read().splitlines()
if len(lines) != 5:
    sys.exit(f"{name:22} FAILED: 5 lines became {len(lines)}")
run = json.load(open(f"{folder}/run.json"))
print(f"{name:22} dev loss {run['dev_loss']:.4f}  {run['seconds']:7.1f} s  {int(parameters):>11,} parameters  "
      f"5 lines -> {sum(len(line.split()) for line in lines)} words", flush=True)
PY
    [[ $? == 0 ]] || failed=1
  else
    printf '%-22s FAILED: %s\n' "$name" "$(tail -n 1 "$folder.log")"
    failed=1
  fi
}

bert() {  # width
  row "bert_$1" pretrained_embeddings.source.model="$ENCODER" pretrained_embeddings.target.model="$ENCODER_TGT" \
    pretrained_embeddings.source.vectors=contextual pretrained_embeddings.target.vectors=contextual \
    model.d_model="$1" model.d_ff=$((2 * $1))
}

mkdir -p "$OUT"
python - "$DATA/test.de.gz" > "$OUT/lines.de" <<'PY'
import gzip, itertools, sys
with gzip.open(sys.argv[1], "rt", encoding="utf-8") as file:
    sys.stdout.writelines(itertools.islice(file, 5))
PY

# Table 2
row baseline infusion.kind=none
row add infusion.kind=add
row onehot_concat infusion.kind=onehot_concat
row learned_concat infusion.kind=learned_concat
row prepend infusion.kind=prepend data.max_pieces=512
row lisa 'lisa={supervised: false}'
row pos_encoder infusion.kind=pos_encoder
# Table 3; its baseline is that of table 2 on data read in another way
bert "$D_MODEL"
bert $((D_MODEL / 2))
bert $((D_MODEL / 4))
# Section 2 of the paper, and what was added here
row predict_target_pos predict_target_pos.annotator=en
row lisa_supervised 'lisa={supervised: true}'
row lisa_added 'lisa={head: added, supervised: false}'
row masks 'masks={}'
row sum_then_concat infusion.kind=sum_then_concat infusion.width=$((D_MODEL < 64 ? 8 : 20))
exit $failed
