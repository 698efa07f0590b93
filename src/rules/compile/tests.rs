//! The vocabulary of the tests.

mod loaded;
mod refused;
mod warned;

use super::{Compiled, Domains, Options, Source, Warnings, compile};
use crate::{
    algorithm::Quota,
    rules::{CompileError, Limit, Mistake, Series},
    unit::Unit,
};

fn sources(texts: &[&str]) -> Vec<Source> {
    texts
        .iter()
        .zip('a'..)
        .map(|(text, letter)| Source {
            name: format!("{letter}.yaml").into(),
            text: text.as_bytes().to_vec(),
        })
        .collect()
}

fn compiled(texts: &[&str]) -> Result<Compiled, CompileError> {
    compile(&sources(texts), Options::default())
}

fn loads(text: &str) -> Compiled {
    compiled(&[text]).unwrap_or_else(|error| panic!("{error}\nin\n{text}"))
}

fn refused(text: &str) -> Vec<Mistake> {
    match compiled(&[text]) {
        Ok(_) => panic!("loads:\n{text}"),
        Err(error) => error.mistakes,
    }
}

fn limit(text: &str) -> Limit {
    let compiled = loads(&format!(
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: {text}\n"
    ));
    compiled.rules.rules()[0]
        .limit
        .clone()
        .expect("a limited rule")
}

fn place(mistake: &Mistake) -> String {
    format!("{}:{}", mistake.place.line, mistake.place.column)
}

/// Exactly one mistake, at `line:column`, of that rule, with all of the phrases.
fn check_refused(text: &str, at: &str, rule: &str, phrases: &[&str]) {
    let mistakes = refused(text);
    assert_eq!(mistakes.len(), 1, "{mistakes:#?}\nin\n{text}");
    for phrase in phrases {
        assert!(
            mistakes[0].message.contains(phrase),
            "{phrase:?} is not in {}",
            mistakes[0]
        );
    }
    assert_eq!(
        (place(&mistakes[0]).as_str(), &*mistakes[0].rule),
        (at, rule),
        "{}",
        mistakes[0]
    );
}

/// A `rate_limit` in braces with one mistake at the text `found`; where that is empty, at the key `rate_limit`.
fn check_limit_refused(limit: &str, found: &str, phrases: &[&str]) {
    let line = format!("  rate_limit: {limit}");
    let text = format!("domain: d\ndescriptors:\n- key: k\n{line}\n");
    let found = if found.is_empty() {
        "rate_limit"
    } else {
        found
    };
    let column = line.find(found).expect("the mistake is in the text") + 1;
    check_refused(&text, &format!("4:{column}"), "d.k", phrases);
}

fn check_warned(text: &str, at: &str, phrase: &str) {
    let warnings = loads(text).warnings;
    assert_eq!(warnings.len(), 1, "{warnings:#?}\nin\n{text}");
    assert!(
        warnings[0].message.contains(phrase),
        "{phrase:?} is not in {}",
        warnings[0]
    );
    assert_eq!(place(&warnings[0]), at, "{}", warnings[0]);

    let strict = Options {
        warnings: Warnings::Refused,
        ..Options::default()
    };
    let error = compile(&sources(&[text]), strict).expect_err("a warning is a mistake");
    assert_eq!(error.mistakes, warnings);
}
