//! Leases over HTTP.

use crate::actors::lease::LeaseMachine;
use crate::protocols::http::route::Routed;

impl Routed for LeaseMachine {}
