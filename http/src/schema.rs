//! The types that requests and answers are made of, each with its bounds, encoding and schema in one place.

use schemars::JsonSchema;
use serde::ser::{Serialize, SerializeMap, Serializer};
use sexton::actors::queue::Body;
use sexton_api::member;

pub(crate) use sexton_api::value::{List, Number, Span};

/// The body of a job, as a field of an API response.
#[derive(Clone, Debug, JsonSchema)]
pub(crate) struct JobText {
    /// The job's body.
    pub(crate) body: Body,
}

/// The output of a command, as a field of an API response.
#[derive(Clone, Debug, JsonSchema)]
pub(crate) struct OutputText {
    /// The end of the output.
    pub(crate) output: Body,
}

impl Serialize for OutputText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(1))?;
        member::write(&mut members, "output", self.output.as_bytes())?;
        members.end()
    }
}

impl Serialize for JobText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(1))?;
        member::write(&mut members, "body", self.body.as_bytes())?;
        members.end()
    }
}
