#!/bin/sh
# Runs each tool once, so that their files are in memory and mypy has analysed the standard library.
set -e
git config --global user.name agent
git config --global user.email agent@example.com
git config --global init.defaultBranch main
mkdir -p /var/cache/mypy /root/warm
cp /usr/lib/forkd-recipe/sample/*.py /root/warm
cd /root/warm
git init -q
git add .
git commit -qm warm
git diff HEAD
rg -n total . >/dev/null
ruff check --no-cache --select E,F .
mypy .
cd /
rm -rf /root/warm
