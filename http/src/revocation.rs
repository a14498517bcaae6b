//! Whether the token or login by which a request was accepted still counts. If the token is removed from the file or loses a scope, or the
//! login expires, the waits of the request end ([`Call::wait`]), and so does its answer if that is a stream (`session.rs`). No route does
//! anything for it.
//!
//! [`Call::wait`]: crate::call::Call::wait

use crate::problem::Problem;
use crate::shared::Shared;
use crate::token::Credential;
use actix_web::http::header;
use sexton::refusal::Reason;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Watches the token or login by which a request was accepted.
#[derive(Clone)]
pub(crate) struct Revocation {
    shared: Arc<Shared>,
    /// `None` for a request that needed neither.
    credential: Option<Credential>,
}

impl Revocation {
    pub(crate) const fn new(shared: Arc<Shared>, credential: Option<Credential>) -> Self {
        Self { shared, credential }
    }

    /// Refuses the request if its token or login does not count any more.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        let counts = self.credential.as_ref().is_none_or(|credential| {
            let tokens = self.shared.tokens();
            let is_live = credential.until().is_none_or(|until| self.shared.date() < until);
            is_live && tokens.is_some_and(|tokens| tokens.accept(credential))
        });
        if counts { Ok(()) } else { Err(Self::problem()) }
    }

    /// Returns the refusal as soon as the token or login does not count any more.
    pub(crate) async fn revoked(&self) -> Problem {
        let Some(credential) = &self.credential else {
            return pending().await;
        };
        let mut tokens = self.shared.tokens.subscribe();
        let removed = tokens.wait_for(|tokens| {
            let accepted = tokens.as_ref().is_some_and(|tokens| tokens.accept(credential));
            !accepted
        });
        let expired = async {
            let Some(until) = credential.until() else {
                return pending().await;
            };
            loop {
                let left = until.0.saturating_sub(self.shared.date().0);
                if left == 0 {
                    return;
                }
                // `clippy.toml` reserves `sleep` for the runtime, so a pause is a timeout around a future that never resolves.
                drop(timeout(Duration::from_millis(left), pending::<()>()).await);
            }
        };
        tokio::select! {
            _ = removed => {}
            () = expired => {}
        }
        Self::problem()
    }

    fn problem() -> Problem {
        let words = "the token was removed or lost a scope, or the login expired, while the request was under way";
        Problem::new(Reason::Unauthorized, words).with(header::WWW_AUTHENTICATE, "Bearer")
    }
}
