//! Questions to the debug port, as they stand in an address.

use http::{HeaderMap, header::ACCEPT};

use crate::request::{Descriptor, Request};

/// The pairs after the `?`, decoded, in order.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
}

/// Most descriptors of one question.
const MOST: usize = 100;

impl Query {
    pub(super) fn new(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decoded(name), decoded(value))
                })
                .collect(),
        )
    }

    /// Refuses every parameter that is not one of `names`: a mistyped one must not widen what is asked for.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn only(self, names: &[&str]) -> Result<Self, String> {
        match self.0.iter().find(|(name, _)| !names.contains(&&**name)) {
            Some((unknown, _)) => Err(format!(
                "{unknown:?} is no parameter here; there are: {}",
                names.join(", ")
            )),
            None => Ok(self),
        }
    }

    /// Whether that is asked for; `false` where the question does not say.
    ///
    /// # Errors
    /// What is neither `true` nor `false`.
    pub(super) fn switch(&self, name: &str) -> Result<bool, String> {
        match self.value(name) {
            Some("true") => Ok(true),
            Some("false") | None => Ok(false),
            Some(_) => Err(format!("{name}=: expected true or false")),
        }
    }

    /// The last value of that name.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter().rev();
        pairs
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    /// JSON where it is asked for, by `format=json` or by what the caller accepts.
    pub(super) fn format(&self, headers: &HeaderMap) -> Format {
        let accepts = headers
            .get(ACCEPT)
            .and_then(|accept| accept.to_str().ok())
            .is_some_and(|accept| accept.contains("application/json"));
        match self.value("format") {
            Some("json") => Format::Json,
            None if accepts => Format::Json,
            _ => Format::Text,
        }
    }

    /// The domain asked for.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn domain(&self) -> Result<&str, String> {
        self.value("domain")
            .filter(|domain| !domain.is_empty())
            .ok_or_else(|| "domain=: which one?".to_owned())
    }

    /// The descriptors asked for, if any, each with `hits`.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn descriptors(&self, hits: i64) -> Result<Vec<Descriptor>, String> {
        let asked = self.0.iter().filter(|(name, _)| name == "descriptor");
        if asked.clone().count() > MOST {
            return Err(format!("descriptor=: {MOST} of them at most"));
        }
        asked
            .map(|(_, text)| {
                Descriptor::parse(text, hits).ok_or_else(|| {
                    "descriptor=: expected key=value, or several separated by commas".to_owned()
                })
            })
            .collect()
    }

    /// The request asked for, with `hits` where the question does not say how many.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn request(&self, hits: u32) -> Result<Request, String> {
        let hits = match self.value("hits") {
            Some(hits) => hits
                .parse::<u32>()
                .map_err(|_| "hits=: expected a whole number".to_owned())?,
            None => hits,
        };
        let descriptors = self.descriptors(hits.into())?;
        if descriptors.is_empty() {
            return Err("descriptor=: expected key=value, or several separated by commas".into());
        }
        Ok(Request {
            domain: self.domain()?.to_owned(),
            descriptors,
        })
    }
}

/// `%41` is `A`, `+` is a space, and what makes no sense stands for itself.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)),
            _ => None,
        };
        match (first, escaped) {
            (_, Some((high, low))) => {
                bytes.push(high << 4 | low);
                rest = &tail[2..];
            }
            (b'+', None) => bytes.push(b' '),
            (other, None) => bytes.push(*other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_as_browsers_and_curl_write_them() {
        let query = Query::new("domain=a%20b&descriptor=k=v,x%3Dy&descriptor=u&hits=3&+=%zz");
        let request = query.request(1).expect("it makes sense");
        assert_eq!(request.domain, "a b");
        let entries: Vec<Vec<(&str, &str)>> = request
            .descriptors
            .iter()
            .map(|descriptor| {
                let entries = descriptor.entries.iter();
                entries
                    .map(|entry| (entry.key.as_str(), entry.value.as_str()))
                    .collect()
            })
            .collect();
        assert_eq!(query.value(" "), Some("%zz"));
        let wrong = query.only(&["domain", "descriptor", "hits"]);
        let wrong = wrong.expect_err("there is none of that name");
        assert!(
            wrong.ends_with("there are: domain, descriptor, hits"),
            "{wrong}"
        );
        assert_eq!(entries[1], [("u", "")]);
        assert_eq!(request.descriptors[0].hits, 3);
        for nonsense in ["", "domain=d", "descriptor=k", "domain=d&descriptor==v"] {
            assert!(Query::new(nonsense).request(1).is_err(), "{nonsense}");
        }
        assert!(
            Query::new("domain=d&descriptor=k&hits=-1")
                .request(1)
                .is_err()
        );
        let many = |count| Query::new(&format!("domain=d{}", "&descriptor=k=v".repeat(count)));
        let asked = many(MOST).request(1).expect("as many as there may be");
        assert_eq!(asked.descriptors.len(), MOST);
        assert!(many(MOST + 1).request(1).is_err());
        for (text, on) in [
            ("", Some(false)),
            ("p=false", Some(false)),
            ("p=true", Some(true)),
            ("p=1", None),
            ("p", None),
        ] {
            assert_eq!(Query::new(text).switch("p").ok(), on, "{text}");
        }
    }
}
