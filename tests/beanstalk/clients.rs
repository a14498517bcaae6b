//! Third-party clients, unchanged, against sexton in beanstalkd's place: jackd's own test suite, and an application that
//! uses greenstalk. `.ci/run` fetches both. A missing client is reported as skipped.

use crate::client_programs;
use crate::left_out::left_out;
use crate::patience::until;
use crate::unserved;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

/// sexton with beanstalkd's command line, on a port of this machine. Killed when dropped.
struct Server(Child);

impl Server {
    fn start(address: SocketAddr) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_sexton"))
            .args(["beanstalkd", "-l", &address.ip().to_string()])
            .args(["-p", &address.port().to_string()])
            .stdout(Stdio::null())
            .spawn()
            .expect("the program runs");
        let server = Self(child);
        until("the server listens", || TcpStream::connect(address).ok());
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Returns an address with this port on which no process listens, or with any free port for 0.
fn free(port: u16) -> std::io::Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, unserved::port(port)?).into())
}

/// Runs a command to its end. Returns its output, if it succeeded.
fn said(command: &mut Command) -> String {
    let output = command.output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    said
}

#[test]
fn an_application_works_through_greenstalk() {
    let Some(python) = client_programs::greenstalk("an application on greenstalk") else {
        return;
    };
    let address = free(0).expect("there is a free port");
    let _server = Server::start(address);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/clients/jobs.py");
    let mut client = Command::new(&python);
    client.args([script, &address.ip().to_string(), &address.port().to_string()]);
    assert_eq!(said(&mut client), "ok\n");
}

#[test]
fn jackds_own_suite_passes() {
    let Some(package) = client_programs::jackd("jackd's suite") else {
        return;
    };
    // The suite only supports this port.
    let address = match free(sexton::config::BEANSTALK_PORT) {
        Ok(address) => address,
        Err(error) => return left_out(format!("jackd's suite, its port is taken: {error}")),
    };
    let _server = Server::start(address);
    let mut suite = Command::new("node");
    suite.args(["node_modules/mocha/bin/mocha", "--bail"]);
    let said = said(suite.current_dir(package));
    assert!(said.contains("16 passing"), "{said}");
    println!("{said}");
}
