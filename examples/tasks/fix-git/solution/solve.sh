#!/bin/bash
set -euo pipefail
cd /workspace/repo

# HEAD's reflog still names the commit that was left when main was checked out.
lost=$(git log --walk-reflogs --format=%H --grep-reflog='Record gusts' HEAD | head -n 1)
git checkout --quiet main
git merge --no-edit "$lost" || true # stops at the conflict in fields.txt
printf 'time\ntemperature\nwind\npressure\ngust\n' > fields.txt
git add fields.txt
git commit --quiet --no-edit
git log --oneline --graph main
