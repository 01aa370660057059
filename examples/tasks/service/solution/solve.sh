#!/bin/bash
set -euo pipefail
cp /solution/server.py /workspace/server.py
# A session of its own and no open stream: it outlives this script.
setsid nohup python3 /workspace/server.py < /dev/null > /workspace/server.log 2>&1 &
for _ in $(seq 50); do
    if curl --silent --fail --output /dev/null http://127.0.0.1:8080/health; then
        exit 0
    fi
    sleep 0.1
done
cat /workspace/server.log
exit 1
