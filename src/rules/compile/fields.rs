//! The fields of a mapping, read as the types they have to be.

use std::rc::Rc;

use super::vocabulary::{Fit, Level, fit, home, key_text};
use crate::rules::{
    file::{At, Node, Pair, Value},
    report::Report,
    scalar::Meaning,
};

/// The fields of one mapping that mean something at its level. Of a repeated key the last one counts.
#[derive(Debug)]
pub(super) struct Fields<'n> {
    fields: Vec<Field<'n>>,
}

/// A key and its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field<'n> {
    pub(super) name: &'n str,
    /// Place of the key.
    pub(super) at: At,
    pub(super) value: &'n Node,
    /// Came in through a `<<`.
    merged: bool,
}

impl<'n> Fields<'n> {
    /// Sorts out what is ignored at this level, and says so.
    pub(super) fn read(pairs: &'n [Pair], level: Level, rule: &str, report: &mut Report) -> Self {
        let mut fields: Vec<Field<'n>> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let Some(name) = key_text(pair) else {
                continue;
            };
            match fit(name, level) {
                Fit::Unknown => continue,
                Fit::Ignored => {
                    report.warning(
                        pair.key.at,
                        rule,
                        format!("'{name}' is ignored here, it belongs {}", home(name)),
                    );
                    continue;
                }
                Fit::Misplaced => {
                    report.mistake(
                        pair.key.at,
                        rule,
                        format!("'{name}' has no meaning here, it belongs {}", home(name)),
                    );
                    continue;
                }
                Fit::Here => {}
            }
            let field = Field {
                name,
                at: pair.key.at,
                value: &pair.value,
                merged: pair.merged.is_some(),
            };
            if let Some(earlier) = fields.iter_mut().find(|field| field.name == name) {
                let line = earlier.at.line;
                // What comes in through `<<` is there to be overridden; the other way round is a surprise.
                match pair.merged {
                    None if earlier.merged => {}
                    None => report.warning(
                        pair.key.at,
                        rule,
                        format!("'{name}' is written twice, and this one wins over the one in line {line}"),
                    ),
                    Some(at) => report.warning(
                        at,
                        rule,
                        format!(
                            "'<<' brings in a '{name}' that wins over the one in line {line}; write '<<' first"
                        ),
                    ),
                }
                *earlier = field;
            } else {
                fields.push(field);
            }
        }
        Self { fields }
    }

    /// The field, unless it is not written or null.
    pub(super) fn get(&self, name: &str) -> Option<Field<'n>> {
        self.fields
            .iter()
            .find(|field| field.name == name && !field.value.is_null())
            .copied()
    }

    /// The text of a field; empty when there is none. A scalar of any kind is text as it is written.
    pub(super) fn text(&self, name: &str, rule: &str, report: &mut Report) -> &'n str {
        let Some(field) = self.get(name) else {
            return "";
        };
        match field.value.as_scalar() {
            Some(scalar) => &scalar.text,
            None => {
                wrong_type(&field, "string", "text", rule, report);
                ""
            }
        }
    }

    /// Whether a field is true; not when there is none.
    pub(super) fn flag(&self, name: &str, rule: &str, report: &mut Report) -> bool {
        let Some(field) = self.get(name) else {
            return false;
        };
        match field.value.as_scalar().map(|scalar| scalar.meaning()) {
            Some(Meaning::Bool(flag)) => flag,
            _ => {
                wrong_type(
                    &field,
                    "bool",
                    "true or false, without quotes",
                    rule,
                    report,
                );
                false
            }
        }
    }

    /// A whole number of 32 bits, as in the wire format.
    pub(super) fn count(&self, name: &str, rule: &str, report: &mut Report) -> Option<u32> {
        let field = self.get(name)?;
        if let Some(Meaning::Int(number)) = field.value.as_scalar().map(|scalar| scalar.meaning())
            && let Ok(number) = u32::try_from(number)
        {
            return Some(number);
        }
        wrong_type(
            &field,
            "uint32",
            "a whole number from 0 to 4294967295, without quotes",
            rule,
            report,
        );
        None
    }

    /// The elements of a list; none when there is no field.
    pub(super) fn list(
        &self,
        name: &str,
        go: &str,
        rule: &str,
        report: &mut Report,
    ) -> &'n [Rc<Node>] {
        let Some(field) = self.get(name) else {
            return &[];
        };
        if let Value::List(items) = &field.value.value {
            return items;
        }
        wrong_type(&field, go, "a list", rule, report);
        &[]
    }

    /// The pairs of a mapping, and the field.
    pub(super) fn map(
        &self,
        name: &str,
        go: &str,
        rule: &str,
        report: &mut Report,
    ) -> Option<(Field<'n>, &'n [Pair])> {
        let field = self.get(name)?;
        match field.value.as_map() {
            Some(pairs) => Some((field, pairs)),
            None => {
                wrong_type(&field, go, "a map", rule, report);
                None
            }
        }
    }
}

/// Says what was found in the words of the reference, which name the type of Go, and what is allowed in ours.
fn wrong_type(field: &Field<'_>, go: &str, allowed: &str, rule: &str, report: &mut Report) {
    report.mistake(
        field.value.at,
        rule,
        format!(
            "{}: {}: it takes {allowed}",
            field.name,
            cannot(field.value, go)
        ),
    );
}

pub(super) fn cannot(node: &Node, go: &str) -> String {
    let found = match &node.value {
        Value::List(_) => "!!seq".to_owned(),
        Value::Map(_) => "!!map".to_owned(),
        Value::Scalar(scalar) => {
            let mut text: String = scalar.text.chars().take(10).collect();
            if scalar.text.chars().nth(10).is_some() {
                text = scalar.text.chars().take(7).collect::<String>() + "...";
            }
            format!("{} `{}`", scalar.tag(), text)
        }
    };
    format!("cannot unmarshal {found} into {go}")
}
