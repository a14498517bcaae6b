# What a developer does here. Each recipe shows the plain command.

_list:
    @just --list

# formatting and lints
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    cargo clippy --lib --no-default-features -- -D warnings

# everything that `cargo test` runs, or what matches a filter
test *FILTER:
    cargo test {{FILTER}}

# record the dialogues and screens anew; read the difference before committing it
rerecord:
    UPDATE=1 cargo test --test scripts
    UPDATE=1 cargo test --bin sexton top

# make the golden directory of the format that is not frozen yet; see snapshots/README.md
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

# beside Redis, where it is installed
bench:
    cargo run --release -p sexton-bench -- locks

# what CI runs
ci:
    bash .ci/run
