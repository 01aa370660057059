#!/bin/bash
# The reference solution, which the agent "oracle" runs. It shows that the task can be solved.
set -euo pipefail

echo "Hello, world!" > hello.txt
