//! The `[tenants.NAME]` tables of the configuration file, each with the weight of one tenant. The table of the default tenant, whose
//! name is empty, is `[tenants.""]`.

use crate::settings::layer::{Problem, Source};
use crate::settings::value::number;
use serde_json::{Value, json};
use sexton::actors::queue::{QueueName, TenantRules};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// The rules of each tenant that has a table, by name.
pub(crate) type Tenants = BTreeMap<String, TenantRules>;

/// Reads the tables, and returns the rules of all tenants, even those with problems, and the problems found. `source` converts a byte
/// offset in the file to the [`Source`] of a problem.
pub(crate) fn tables(
    value: &DeValue<'_>,
    source: impl Fn(usize) -> Source,
) -> (Tenants, Vec<Problem>) {
    let (mut tenants, mut problems) = (Tenants::new(), Vec::new());
    let DeValue::Table(all) = value else {
        let words = "expected tables such as [tenants.acme]";
        return (tenants, vec![Problem::new(source(0), "tenants", words)]);
    };
    for (name, value) in all {
        let (name, at) = (name.get_ref().as_ref(), name.span().start);
        let mut wrong = |at, words: String| {
            problems.push(Problem::new(source(at), &format!("tenants.{name}"), words));
        };
        if !name.is_empty() && QueueName::new(name.as_bytes()).is_none() {
            wrong(at, "not a valid name for a tenant".to_owned());
        }
        let mut rules = TenantRules::default();
        if let DeValue::Table(table) = value.get_ref() {
            read(table, &mut rules, wrong);
        } else {
            wrong(at, "expected a table with the key weight".to_owned());
        }
        tenants.insert(name.to_owned(), rules);
    }
    (tenants, problems)
}

fn read(table: &DeTable<'_>, rules: &mut TenantRules, mut wrong: impl FnMut(usize, String)) {
    for (key, value) in table {
        let at = key.span().start;
        if key.get_ref() != "weight" {
            let words = format!("{}: unknown key; expected weight", key.get_ref());
            wrong(at, words);
            continue;
        }
        match number(value.get_ref()).ok().filter(TenantRules::is_weight) {
            Some(weight) => rules.weight = weight,
            None => wrong(
                at,
                format!("weight: expected a whole number from 1 to {}", TenantRules::WEIGHT_MAX),
            ),
        }
    }
}

/// Returns the rules of each tenant that has a table, as JSON.
pub(crate) fn document(tenants: &Tenants) -> Value {
    let each = tenants.iter();
    Value::Object(each.map(|(name, of)| (name.clone(), json!(of))).collect())
}
