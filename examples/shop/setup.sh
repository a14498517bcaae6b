#!/bin/sh
# What the coordinator is to know beside its configuration. All of it may be said again at each start.
set -e
here=$PWD
# Two servers, both this machine; with `--ssh deploy@host` one of them is another.
sexton server add small --threads 1
sexton server add large --threads 2
sexton task limit exports 2
sexton lease set nightly command --dir "$here" -- ./nightly.sh
sexton lease set nightly period 1s
sexton lease set nightly schedule "0 3 * * *"
