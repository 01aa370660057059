#!/bin/sh
set -eu
python3 -I -B /tests/check.py /workspace/out > /logs/verifier/reward.json
cat /logs/verifier/reward.json
