#!/bin/sh
# -I: nothing from the working directory or the environment is imported. Without a result the script fails, and no reward is left.
set -eu
python3 -I /tests/check.py /workspace/repo > /logs/verifier/report.txt && status=0 || status=$?
cat /logs/verifier/report.txt
case $status in
    0) echo 1 > /logs/verifier/reward.txt ;;
    10) echo 0 > /logs/verifier/reward.txt ;;
    *) exit "$status" ;;
esac
