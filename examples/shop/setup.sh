#!/bin/sh
# Makes the settings that have no place in the configuration file. It runs each time the server starts, which is safe: all may be repeated.
set -e
here=$PWD
# Two servers, both on this machine; `--ssh deploy@host` would make one of them a remote machine.
sexton server add small --threads 1
sexton server add large --threads 2
sexton task limit exports 2
sexton lease set nightly command --dir "$here" -- ./nightly.sh
sexton lease set nightly period 1s
sexton lease set nightly schedule "0 3 * * *"
