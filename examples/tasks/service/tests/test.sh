#!/bin/sh
# The agent's processes still run. They have another user, so from here on they can't reach the results.
set -eu
chmod 700 /logs/verifier
rm -rf /logs/verifier/reward.txt /logs/verifier/reward.json
python3 -I -B /tests/check.py && status=0 || status=$?
case $status in
    0) echo 1 > /logs/verifier/reward.txt ;;
    10) echo 0 > /logs/verifier/reward.txt ;;
    *) exit "$status" ;;
esac
