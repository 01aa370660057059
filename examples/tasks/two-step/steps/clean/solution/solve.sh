#!/bin/bash
set -euo pipefail
python3 /solution/clean.py
