#!/bin/sh
# Plain sh: this task is also what the harness's own costs are measured with.
set -eu
answer=/workspace/hello.txt
expected=$(mktemp)
printf 'Hello, world!\n' > "$expected"

if [ -f "$answer" ] && [ ! -L "$answer" ] && cmp -s "$answer" "$expected"; then
    reward=1
else
    reward=0
fi
echo "reward: $reward"
echo "$reward" > /logs/verifier/reward.txt
