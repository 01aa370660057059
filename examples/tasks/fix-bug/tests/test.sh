#!/bin/sh
# The package under test is the agent's work. It runs as "nobody", which can neither read the tests nor write results.
# Without a report of every test the script fails, and no reward is left.
set -eu
chmod 700 /tests /logs/verifier
rm -f /logs/verifier/reward.txt /logs/verifier/reward.json
exec python3 -I -B /tests/grade.py /workspace/src /logs/verifier
