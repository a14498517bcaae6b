# Common tasks of a developer. Each recipe shows the plain command.

_list:
    @just --list

# formatting and lints
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo clippy --package sexton --lib --no-default-features -- -D warnings

# all tests, or those that match a filter
test *FILTER:
    cargo test {{FILTER}}

# record the dialogues and screens again; read the difference before committing it
rerecord:
    UPDATE=1 cargo test --test scripts
    UPDATE=1 cargo test --bin sexton top

# regenerate the golden directory of the format that is not frozen yet; see snapshots/README.md
golden:
    cargo test --test storage golden::make -- --ignored

# the simulation for one seed, with its trace
sim SEED:
    SEXTON_SIM_SEED={{SEED}} cargo test --release --test sim -- --nocapture

# the long campaigns
campaign:
    SEXTON_SIM_SEEDS=100000 cargo test --release --test sim -- --nocapture
    SEXTON_CRASH_KILLS=500 cargo test --release --test crash -- --nocapture

# the documentation as a site, in target/book
book:
    mdbook build

# a Debian package, in target/packages
deb:
    packaging/deb

# run the coordinator
serve *FLAGS:
    cargo run --release -- serve {{FLAGS}}

# show a log
replay LOG:
    cargo run --release -- replay {{LOG}}

# the benchmark of locks, with Redis for comparison where it is installed
bench:
    cargo run --release -p sexton-bench -- locks

# what CI runs
ci:
    bash .ci/run
