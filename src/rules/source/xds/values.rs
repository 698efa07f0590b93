//! Values of the settings of the control plane's client, as they are written.

use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::metadata::{Binary, MetadataValue};

use crate::go_values::{self, Malformed};

/// Above the 4 MiB that gRPC allows by itself: a gateway with a few thousand rules pushes more.
pub(super) const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Names and what they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(pub Vec<(String, String)>);

/// `CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS` is no list of headers. Does not quote it: it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: entry {entry} {reason}")]
pub struct HeadersError {
    /// Which of the pairs, from 1.
    pub entry: usize,
    /// What is wrong with it.
    pub reason: &'static str,
}

pub(super) fn pairs(text: &str) -> Result<Pairs, String> {
    text.split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(format!("'{pair}' is no name=text pair")),
        })
        .collect::<Result<_, _>>()
        .map(Pairs)
}

pub(super) fn headers(text: &str) -> Result<HeaderMap, HeadersError> {
    let mut headers = HeaderMap::new();
    let entries = text.split(',').filter(|pair| !pair.trim().is_empty());
    for (entry, pair) in (1..).zip(entries) {
        let wrong = |reason| HeadersError { entry, reason };
        let (name, value) = pair.split_once(':').ok_or(wrong("is no name:text pair"))?;
        let name: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| wrong("has a name that no header can have"))?;
        let value = value.trim();
        let value = if name.as_str().ends_with("-bin") {
            // What a header cannot hold as it is: gRPC encodes the values of names that end so.
            let encoded = MetadataValue::<Binary>::from_bytes(value.as_bytes());
            HeaderValue::from_bytes(encoded.as_encoded_bytes())
        } else {
            HeaderValue::from_str(value)
        };
        let mut value = value.map_err(|_| wrong("has a text that no header can have"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// `host:port`, as Go's gRPC takes it: a `dns:///` before it says nothing new, and the port may be left out.
pub(super) fn authority(text: &str) -> Result<String, String> {
    const SHAPE: &str = "the control plane is named as host:port, such as envoy-gateway:18001";
    if text.contains("://") && !text.starts_with("dns:///") {
        return Err(format!(
            "{SHAPE}, without '{}'; for TLS set CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
            text.split_inclusive("://").next().unwrap_or_default()
        ));
    }
    let text = text.strip_prefix("dns:///").unwrap_or(text);
    let authority: http::uri::Authority = text.parse().map_err(|_| SHAPE.to_owned())?;
    if authority.host().is_empty() || text.contains('@') {
        return Err(SHAPE.to_owned());
    }
    match text.strip_prefix(authority.host()) {
        Some("") => Ok(format!("{text}:443")),
        Some(port) if port[1..].parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err(SHAPE.to_owned()),
    }
}

pub(super) fn factor(text: &str) -> Result<f64, &'static str> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor >= 0.0 => Ok(factor),
        _ => Err("a factor is a number from 0 on, such as 0.5"),
    }
}

/// 0 is Go's way to leave it to the library.
pub(super) fn bytes(text: &str) -> Result<usize, Malformed> {
    match text {
        "0" => Ok(MAX_MESSAGE_BYTES),
        _ => go_values::count(text),
    }
}

#[cfg(test)]
mod tests {
    use super::{authority, headers, pairs};

    #[test]
    fn addresses_are_those_that_go_takes() {
        for (text, expected) in [
            ("envoy-gateway:18001", "envoy-gateway:18001"),
            ("dns:///a.b:1", "a.b:1"),
            ("[::1]:18000", "[::1]:18000"),
            ("host", "host:443"),
        ] {
            assert_eq!(authority(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            ":18000",
            "http://a:1",
            "a:",
            "a:99999",
            "u@a:1",
            "a b:1",
            "a:1/x",
        ] {
            assert!(authority(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pairs_are_split_at_their_first_sign() {
        let metadata = pairs("a=b, c = d=e,").expect("good");
        assert_eq!(
            metadata.0,
            [
                ("a".to_owned(), "b".to_owned()),
                ("c".to_owned(), "d=e".to_owned())
            ]
        );
        assert!(pairs("a:b").is_err());
        let headers = headers("Authorization:Bearer a:b,x-Team-bin:hi").expect("good");
        assert_eq!(headers["authorization"], "Bearer a:b");
        assert_eq!(headers["x-team-bin"], "aGk");
    }
}
