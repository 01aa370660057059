#!/bin/bash
set -euo pipefail
cd /workspace/src
git apply --verbose /solution/indexedset.patch
