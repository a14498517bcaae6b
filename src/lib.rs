//! sexton keeps an application's background work in order: locks today; leases, job queues, processes and task dispatch
//! to come. It runs inside a Rust program, as here, or as a daemon beside one (`sexton serve`).
//!
//! A [`Node`] is a coordinator on threads of its own. What it acknowledges is on disk before the answer leaves, and
//! every change stands in a journal that [`replay`] can read. A node installs no signal handlers, prints nothing and
//! never ends the program.
//!
//! ```
//! use sexton::actors::host::Item;
//! use sexton::actors::lock::{Message, Name, Reply};
//! use sexton::{Config, Node};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::open(Config::in_memory())?; // or Config::at("/var/lib/app/locks")
//! let locks = node.handle();
//! let request = Message::Request {
//!     key: Name::try_from("acct")?,
//!     index: Name::try_from("42")?,
//!     owner: Name::try_from("me")?,
//!     ttl: 60, // seconds to live as owner without a renewal
//!     ttw: 30, // seconds to wait in line without one
//!     priority: 5,
//! };
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! let answers = runtime.block_on(locks.locks(vec![Item::Message(request)]))?;
//! let Some(Ok(Reply::Standing(standing))) = answers.first() else { panic!("not granted: {answers:?}") };
//! assert_eq!(standing.place, 1, "the owner stands in the first place");
//! let token = standing.token.expect("an owner has a fencing token");
//! println!("acct 42 is ours; tell the resource token {token}");
//! node.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`node`] | opening, stopping, asking |
//! | [`config`] | every setting |
//! | [`actors`] | pure machines in one shell; [`actors::lock`] has the messages of locks |
//! | [`persist`] | the journal |
//! | [`protocols`] | the doors |
//! | [`replay`] | logs as JSON lines |
//! | [`status`] | what a node says of itself |

pub mod actors;
pub mod clock;
pub mod config;
pub mod ids;
pub mod node;
pub mod persist;
pub mod protocols;
#[cfg(feature = "replay")]
pub mod replay;
pub mod status;

pub use config::Config;
pub use node::Node;
