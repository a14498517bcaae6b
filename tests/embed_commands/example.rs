//! The example that launches commands, run unchanged: its output is compared with the text here.

#[expect(dead_code, reason = "its `main` is run by `cargo test`, as a program of its own")]
#[path = "../../examples/commands.rs"]
mod commands;

/// The example is its own keeper, which a test program cannot be, so this test uses the `sexton` program as the keeper.
#[test]
fn a_program_runs_commands_that_outlive_its_node() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let keeper = sexton::config::KeeperProgram::At(env!("CARGO_BIN_EXE_sexton").into());
    let expected = "it is running
it ended with exit code 3
";
    let mut printed = Vec::new();
    commands::run(&keeper, files.path(), &mut printed).expect("the example ends well");
    assert_eq!(String::from_utf8(printed).as_deref(), Ok(expected));
}
