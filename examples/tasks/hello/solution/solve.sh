#!/bin/sh
set -eu
printf 'Hello, world!\n' > /workspace/hello.txt
