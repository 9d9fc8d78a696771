#!/usr/bin/env bash
# Verifies each MODELS/NAME/base.* against MODELS/NAME/dist.* and writes
# REPORTS/NAME.{sarif,xml,html}. With SINCE set to a commit, only models with
# files that changed since then. Fails if one is not proved.
#
# usage: verify_models.sh MODELS REPORTS    (SCALIFY: the program)
set -euo pipefail
models=$1 reports=$2 scalify=${SCALIFY:-scalify}
mkdir -p "$reports"
failed=0 count=0
for dir in "$models"/*/; do
  base=$(ls "$dir"base.* 2>/dev/null | head -1) dist=$(ls "$dir"dist.* 2>/dev/null | head -1)
  [[ -n $base && -n $dist ]] || continue
  if [[ -n ${SINCE:-} ]] && git diff --quiet "$SINCE" -- "$dir"; then
    continue
  fi
  name=$(basename "$dir")
  count=$((count + 1))
  spec=()
  [[ -f ${dir}spec.toml ]] && spec=(--spec "${dir}spec.toml")
  "$scalify" verify "$base" "$dist" "${spec[@]}" --github --source-root . \
    --sarif "$reports/$name.sarif" --junit "$reports/$name.xml" --html "$reports/$name.html" || failed=1
done
[[ $count -gt 0 || -n ${SINCE:-} ]] || { echo "no models in $models" >&2; exit 2; }
exit $failed
