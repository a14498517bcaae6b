#!/bin/sh
# Makes the settings that cannot be made in the configuration file. It runs each time `sexton serve` starts, which is safe: each of its
# commands may be repeated.
set -e
here=$PWD
# Two servers for tasks, both on this machine; `--ssh deploy@host` would make one of them a remote machine.
sexton server add small --threads 1
sexton server add large --threads 2
sexton task limit exports 2
sexton lease set nightly command --dir "$here" -- ./nightly.sh
sexton lease set nightly period 1s
sexton lease set nightly schedule "0 3 * * *"
