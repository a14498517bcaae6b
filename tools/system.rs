//! Formats figures about the machine and the coordinator's process, for `sexton status` and `sexton top`.

use crate::text::{bytes, grouped, span};
use serde_json::Value;

/// Formats the machine's load, memory and uptime. Unknown figures are left out; if none is known, returns only `not known`.
pub(crate) fn host(status: &Value) -> Vec<String> {
    let host = |name: &str| status.pointer("/host")?.get(name)?.as_u64();
    let load = status.pointer("/host/load").and_then(Value::as_array);
    let load = load.map(|load| {
        let load = load.iter().filter_map(Value::as_f64);
        let words: Vec<String> = load.map(|load| format!("{load:.2}")).collect();
        match host("processors") {
            Some(processors) => format!("load {} on {processors}", words.join(" ")),
            None => format!("load {}", words.join(" ")),
        }
    });
    let available = host("memory_available_bytes").zip(host("memory_bytes"));
    let memory =
        available.map(|(free, all)| format!("{} of {} available", bytes(free), bytes(all)));
    let up = host("uptime_ms").map(|ms| format!("up {}", span(ms)));
    known([load, memory, up])
}

/// Formats the memory and descriptors of the coordinator's process. Unknown figures are handled as in [`host`].
pub(crate) fn process(status: &Value) -> Vec<String> {
    let process = |name: &str| status.pointer("/process")?.get(name)?.as_u64();
    let memory = process("memory_bytes").map(|now| format!("memory {}", bytes(now)));
    let peak = process("memory_peak_bytes").map(|peak| format!("peak {}", bytes(peak)));
    let descriptors = process("descriptors").map(|open| match process("descriptors_max") {
        Some(most) => format!("descriptors {} of {}", grouped(open), grouped(most)),
        None => format!("descriptors {}", grouped(open)),
    });
    known([memory, peak, descriptors])
}

fn known(parts: [Option<String>; 3]) -> Vec<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return vec!["not known".to_owned()];
    }
    parts
}
