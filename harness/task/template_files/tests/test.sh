#!/bin/bash
# Runs after the agent, in the working directory, with this folder at /tests. It writes the reward, 0 to 1, to reward.txt; or several
# by name to reward.json, such as {"tests": 1, "style": 0.5}.

reward=0
if [ "$(cat hello.txt 2>/dev/null)" = "Hello, world!" ]; then
    reward=1
fi
mkdir -p /logs/verifier
echo "$reward" > /logs/verifier/reward.txt
