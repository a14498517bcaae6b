//! Scopes: what a route requires, and what a caller has. `access.rs` decides which scopes a caller has; `route.rs` compares them with those
//! that the route requires, in one place, before anything else is done with a request.

use crate::problem::Problem;
use sexton::refusal::Reason;

pub(crate) use sexton_api::request::Scope;

/// What a route requires beside a scope.
pub(crate) trait OrRun {
    /// Requires this scope, and [`Scope::Run`] for requests to which `applies` returns true. `condition` describes these requests; it is
    /// meant to follow "if".
    fn or_run<T>(self, condition: &'static str, applies: fn(&T) -> bool) -> Required<T>;

    /// Requires this scope, and [`Scope::Run`] for requests to which `condition` applies, which depends on the state of an actor: the actor
    /// refuses them (see `Machine::forbids`), since every caller without that scope has limited authority.
    fn or_run_by_state(self, condition: &'static str) -> ByState;
}

impl OrRun for Scope {
    fn or_run<T>(self, condition: &'static str, applies: fn(&T) -> bool) -> Required<T> {
        Required { scope: self, run: Some((condition, applies)) }
    }

    fn or_run_by_state(self, condition: &'static str) -> ByState {
        ByState { scope: self, condition }
    }
}

/// A condition on the input of a route: in words, and as a function.
type Condition<T> = (&'static str, fn(&T) -> bool);

/// The scopes that a route requires, depending on its input `T`.
pub(crate) struct Required<T> {
    /// The scope that every request requires.
    pub(crate) scope: Scope,
    /// Which requests require [`Scope::Run`]: in words, and as a function of the input.
    run: Option<Condition<T>>,
}

impl<T> Required<T> {
    /// Returns which requests require [`Scope::Run`] in addition, in words; `None` if no condition was given.
    pub(crate) fn condition(&self) -> Option<&'static str> {
        self.run.map(|(condition, _)| condition)
    }

    /// Refuses a request with this input if it requires a scope that the caller does not have.
    pub(crate) fn check(&self, scopes: Scopes, input: &T) -> Result<(), Problem> {
        match self.run {
            Some((_, applies)) if applies(input) => scopes.check(Scope::Run),
            Some(_) | None => scopes.check(self.scope),
        }
    }
}

impl<T> Clone for Required<T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<T> From<Scope> for Required<T> {
    fn from(scope: Scope) -> Self {
        Self { scope, run: None }
    }
}

/// The scopes that a route requires, depending on the state of an actor, which checks them.
pub(crate) struct ByState {
    scope: Scope,
    condition: &'static str,
}

impl<T> From<ByState> for Required<T> {
    fn from(it: ByState) -> Self {
        it.scope.or_run(it.condition, |_| false)
    }
}

/// The scopes that a caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scopes {
    /// None: the path is open, and nothing was checked.
    None,
    /// Only [`Scope::Read`]: a token with ` read` after it.
    Read,
    /// All except [`Scope::Run`].
    Plain,
    /// As [`Scopes::Plain`]: the caller has a token with the scope `run`, but sent it over a connection that others can read.
    Exposed,
    /// All: the caller is connected to the Unix socket as root or as the coordinator's own user, or it sent a token with the scope `run`
    /// over TLS or over loopback.
    All,
}

impl Scopes {
    /// Returns whether a scope is among these.
    pub(crate) fn has(self, scope: Scope) -> bool {
        match scope {
            Scope::Open => true,
            Scope::Read => self != Self::None,
            Scope::Use | Scope::Operate => {
                matches!(self, Self::Plain | Self::Exposed | Self::All)
            }
            Scope::Run => self == Self::All,
        }
    }

    /// Returns whether these are all scopes of `other`, or more.
    pub(crate) fn include(self, other: Self) -> bool {
        let all = [Scope::Open, Scope::Read, Scope::Use, Scope::Operate, Scope::Run];
        all.into_iter().all(|scope| self.has(scope) || !other.has(scope))
    }

    /// Refuses a caller that does not have a scope.
    pub(crate) fn check(self, scope: Scope) -> Result<(), Problem> {
        if self.has(scope) {
            return Ok(());
        }
        let words = match (scope, self) {
            (Scope::Run, Self::Exposed) => {
                "from other machines, the scope run can be used only over TLS: start the coordinator with --tls-cert and --tls-key"
            }
            (Scope::Run, _) => {
                "whatever starts, ends or shows processes, or stops the coordinator, requires a token with the scope run (a line of --token-file with \" run\" after the token), or a connection to the Unix socket as the coordinator's own user"
            }
            _ => {
                "this token has only the scope read: changes require a token without \" read\" after it in --token-file"
            }
        };
        Err(Problem::new(Reason::OutOfScope, words))
    }
}

#[cfg(test)]
mod tests {
    use super::{OrRun as _, Required, Scope, Scopes};

    #[test]
    fn each_caller_has_the_scopes_of_those_below_it() {
        use Scope::{Open, Operate, Read, Run, Use};
        let all = [Open, Read, Use, Operate, Run];
        for (scopes, count) in [
            (Scopes::None, 1),
            (Scopes::Read, 2),
            (Scopes::Plain, 4),
            (Scopes::Exposed, 4),
            (Scopes::All, 5),
        ] {
            let has: Vec<Scope> = all.into_iter().filter(|it| scopes.has(*it)).collect();
            assert_eq!(has, all.get(..count).unwrap(), "{scopes:?}");
            for scope in all {
                assert_eq!(scopes.check(scope).is_ok(), scopes.has(scope));
            }
        }
    }

    #[test]
    fn a_condition_asks_for_run_only_where_it_applies() {
        let required: Required<bool> = Scope::Use.or_run("it is true", |it| *it);
        required.check(Scopes::Plain, &false).unwrap();
        required.check(Scopes::All, &true).unwrap();
        required.check(Scopes::Plain, &true).unwrap_err();
        required.check(Scopes::Read, &false).unwrap_err();
    }
}
