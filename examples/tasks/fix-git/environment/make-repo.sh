#!/bin/bash
# Makes the repository with two lost commits. Names and dates are fixed, so the commits have the same ids in every build.
set -euo pipefail
umask 002
cd "$1"

commit() { # commit DATE MESSAGE: everything that changed
    git add --all
    GIT_AUTHOR_DATE="$1" GIT_COMMITTER_DATE="$1" git commit --quiet --message "$2"
}

git init --quiet --shared=group --initial-branch=main
git config user.name "Weather Office"
git config user.email "office@example.org"

printf '# Station settings\n\nOne field per line in fields.txt.\n' > README.md
printf 'time\ntemperature\nwind\n' > fields.txt
printf 'id,name\n06041,Skagen\n' > stations.csv
commit "2024-03-01T08:00:00Z" "Start the settings"

printf 'id,name\n06041,Skagen\n06052,Thyboron\n' > stations.csv
commit "2024-03-02T08:00:00Z" "Add Thyboron"

git checkout --quiet --detach
printf 'temperature,degC\nwind,m/s\n' > units.csv
commit "2024-03-03T08:00:00Z" "Name the units"
printf 'time\ntemperature\nwind\ngust\n' > fields.txt
printf 'temperature,degC\nwind,m/s\ngust,m/s\n' > units.csv
commit "2024-03-03T09:00:00Z" "Record gusts"

git checkout --quiet main
printf 'time\ntemperature\nwind\npressure\n' > fields.txt
printf 'id,name\n06041,Skagen\n06052,Thyboron\n06079,Anholt\n' > stations.csv
commit "2024-03-04T08:00:00Z" "Record pressure"
