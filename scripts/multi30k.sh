#!/usr/bin/env bash
# Multi30k EN-DE: baseline and sum_then_concat, one seed each, scored on test2016 and test2017. About an hour for each
# model on one processor core; OMP_NUM_THREADS=1 and `&` train both at once on two.
#
#   scripts/multi30k.sh [DATA] [SEED]
set -euo pipefail
DATA=${1:-../shared/data/multi30k}
SEED=${2:-1}

declare -A KIND=([base]=none [sit]=sum_then_concat)
for name in base sit; do
  OMP_NUM_THREADS=1 syntaxformer train recipes/multi30k.yaml data.dir="$DATA" infusion.kind="${KIND[$name]}" \
    seed="$SEED" output="runs/$name" > "runs/$name.log" 2>&1 &
done
wait
for test in test2016 test2017; do
  for name in base sit; do
    echo "$name $test"
    syntaxformer evaluate "runs/$name" --src "$DATA/$test.en.gz" --ref "$DATA/$test.de.gz" -o "runs/$name.$test.de"
  done
  syntaxformer evaluate runs/sit --src "$DATA/$test.en.gz" --ref "$DATA/$test.de.gz" --baseline runs/base
done
