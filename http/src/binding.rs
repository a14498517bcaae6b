//! Bindings to processes, in requests and answers. A right (a lock, a claim of a job, or a pass of a lease) that is bound to a process ends
//! when the process, or its whole tree, has ended.

use crate::call::Call;
use crate::problem::Problem;
use crate::process_look;
use sexton::actors::binding::{Binding, Until};
use sexton::refusal::Reason;
use sexton_api::binding::Extent;

/// The part of a request that binds a right to a process.
pub(crate) struct Bound {
    /// The process, given by its id or a prefix of its id; `None` for no binding.
    pub(crate) process: Option<String>,
    /// How much of the process must have ended before the right ends.
    pub(crate) release: Extent,
    /// Whether the process tree of an expired right is killed before the right is granted to someone else.
    pub(crate) kill_before_grant: bool,
}

impl Bound {
    /// Returns the requested binding, or `None` if the request names no process. Besides what `checked` refuses, refuses a process
    /// that has ended, and `kill_before_grant` for a process that the coordinator did not launch.
    pub(crate) async fn binding(&self, call: &Call) -> Result<Option<Binding>, Problem> {
        let Some((process, until)) = self.checked()? else {
            return Ok(None);
        };
        let fence = self.kill_before_grant;
        let id = process_look::which(call, process).await;
        let id = id.map_err(|problem| problem.naming("process"))?;
        let record = call.node.processes().get(id).await;
        let record = record.map_err(|error| Problem::from(error).naming("process"))?;
        if record.end.is_some() {
            return Err(Problem::new(Reason::Ended, "the process has ended"));
        }
        if fence && !record.launched {
            let words =
                "requires a process that the coordinator launched, but this one was registered";
            return Err(Problem::field("kill_before_grant", words));
        }
        Ok(Some(Binding { process: id, until, fence }))
    }

    /// Returns the binding for a worker that completes a job and claims the next one, or `None` if the request names no process.
    /// Without `kill_before_grant`, a process given by its full id is not looked up: if it has ended meanwhile, a right bound to it ends
    /// immediately.
    pub(crate) async fn binding_again(&self, call: &Call) -> Result<Option<Binding>, Problem> {
        let named = self.checked()?;
        let known = named.and_then(|(process, until)| Some((process.parse().ok()?, until)));
        match known.filter(|_| !self.kill_before_grant) {
            Some((process, until)) => Ok(Some(Binding { process, until, fence: false })),
            None => self.binding(call).await,
        }
    }

    /// Returns the process that the request names, and how much of it must have ended before the right ends; `None` if the request names
    /// no process. Refuses `kill_before_grant` unless a process tree is named. A route that accepts a process requires the scope `run` for it.
    fn checked(&self) -> Result<Option<(&str, Until)>, Problem> {
        let Some(process) = &self.process else {
            if self.kill_before_grant {
                return Err(Problem::field("kill_before_grant", "requires process"));
            }
            return Ok(None);
        };
        let until = self.release.into();
        if self.kill_before_grant && until == Until::Process {
            let words = "requires release to be `tree`";
            return Err(Problem::field("kill_before_grant", words));
        }
        Ok(Some((process, until)))
    }
}
