#!/usr/bin/env bash
# 200,000 English lines by the local engine, by two Ray workers, by one, and by two of which one is killed three times (35, 80 and
# 150 s after the start): seconds of each whole command, SHA-256 of each file (they must be the same), and the last command again.
# A quarter of an hour on two cores.
#
#   scripts/annotate_by_ray.sh
set -euo pipefail
DATA=${SYNTAXFORMER_DATA:-../shared/data}
FOLDER=runs/annotate_by_ray
export OMP_NUM_THREADS=1 SYNTAXFORMER_CACHE=$FOLDER/cache
mkdir -p $FOLDER
zcat "$DATA"/tatoeba/anki_2018.en.gz "$DATA"/multi30k/{train,val,test2016}.en.gz | head -200000 > $FOLDER/in.txt || true
[ "$(wc -l < $FOLDER/in.txt)" = 200000 ]

annotate() { # NAME OPTION...
  local name=$1 start=$SECONDS
  shift
  syntaxformer --quiet annotate $FOLDER/in.txt -o $FOLDER/"$name".parquet "$@"
  echo "$name: $((SECONDS - start)) s, $(sha256sum < $FOLDER/"$name".parquet | cut -d' ' -f1)"
}
kill_workers() { # ends with an error where one of the three could not be killed
  for pause in 35 45 70; do
    sleep $pause
    kill -9 "$(pgrep -f '^ray::_Worker.annotate' | head -1)"
    echo "a worker was killed"
  done
}
rm -f $FOLDER/*.parquet
RAY="--engine ray"
annotate two $RAY --processes 2
annotate one $RAY --processes 1
kill_workers &
killer=$!
annotate killed $RAY --processes 2
wait $killer
syntaxformer annotate $FOLDER/in.txt -o $FOLDER/killed.parquet $RAY --processes 2 2>&1 | grep 'nothing to do'
annotate local
[ "$(sha256sum $FOLDER/{two,one,killed,local}.parquet | cut -d' ' -f1 | sort -u | wc -l)" = 1 ] && echo "all files are the same"
