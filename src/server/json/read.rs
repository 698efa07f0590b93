//! A `RateLimitRequest` from protobuf's JSON: names in either case style, numbers also as text, enums also as numbers,
//! `null` for a default. An unknown field is an error, as it is for the reference.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor as wire},
    service::ratelimit::v3::RateLimitRequest,
    r#type::v3::RateLimitUnit,
};

/// Reads a request.
///
/// # Errors
/// The first mistake, with its line and column.
pub(crate) fn request(body: &[u8]) -> Result<RateLimitRequest, serde_json::Error> {
    let Object::<Request>(request) = serde_json::from_slice(body)?;
    Ok(RateLimitRequest {
        domain: request.domain,
        descriptors: request
            .descriptors
            .into_iter()
            .map(|Object(descriptor)| descriptor.into())
            .collect(),
        hits_addend: request.hits_addend,
    })
}

/// A message is an object: serde's own structs would take an array too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Fields(PhantomData))
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Request {
    #[serde(deserialize_with = "or_default")]
    domain: String,
    #[serde(deserialize_with = "or_default")]
    descriptors: Vec<Object<Descriptor>>,
    #[serde(alias = "hits_addend", deserialize_with = "uint32")]
    hits_addend: u32,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Descriptor {
    #[serde(deserialize_with = "or_default")]
    entries: Vec<Object<Entry>>,
    limit: Option<Object<Limit>>,
    #[serde(alias = "hits_addend", deserialize_with = "optional_uint64")]
    hits_addend: Option<u64>,
    #[serde(alias = "is_negative_hits", deserialize_with = "or_default")]
    is_negative_hits: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Entry {
    #[serde(deserialize_with = "or_default")]
    key: String,
    #[serde(deserialize_with = "or_default")]
    value: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Limit {
    #[serde(alias = "requests_per_unit", deserialize_with = "uint32")]
    requests_per_unit: u32,
    #[serde(deserialize_with = "unit")]
    unit: i32,
}

impl From<Descriptor> for RateLimitDescriptor {
    fn from(descriptor: Descriptor) -> Self {
        Self {
            entries: descriptor
                .entries
                .into_iter()
                .map(|Object(Entry { key, value })| wire::Entry { key, value })
                .collect(),
            limit: descriptor
                .limit
                .map(|Object(limit)| wire::RateLimitOverride {
                    requests_per_unit: limit.requests_per_unit,
                    unit: limit.unit,
                }),
            hits_addend: descriptor.hits_addend,
            is_negative_hits: descriptor.is_negative_hits,
        }
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn uint32<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let number = optional_uint64(deserializer)?.unwrap_or(0);
    u32::try_from(number).map_err(|_| de::Error::custom("a number above 4294967295"))
}

fn optional_uint64<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(|Unsigned(number)| number))
}

fn unit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    Ok(Option::deserialize(deserializer)?.map_or(0, |Unit(number)| number))
}

/// A whole number from 0 on, as a number or as text.
struct Unsigned(u64);

impl<'de> Deserialize<'de> for Unsigned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Unsigned;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number from 0 on")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Unsigned, E> {
                Ok(Unsigned(number))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Unsigned, E> {
                // protobuf takes 1.0 and 1e3 for whole numbers too. Below 2^53 the cast is exact.
                if number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number) {
                    Ok(Unsigned(number as u64))
                } else {
                    Err(E::invalid_value(de::Unexpected::Float(number), &self))
                }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Unsigned, E> {
                if let Ok(number) = text.parse::<u64>()
                    && !text.starts_with('+')
                {
                    return Ok(Unsigned(number));
                }
                Err(E::custom("text that is no whole number from 0 on"))
            }
        }

        deserializer.deserialize_any(Number)
    }
}

/// A unit's name or number. A number that names none is for the request's own checks.
struct Unit(i32);

impl<'de> Deserialize<'de> for Unit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrNumber;

        impl Visitor<'_> for NameOrNumber {
            type Value = Unit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a unit such as \"HOUR\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Unit, E> {
                i32::try_from(number)
                    .map(Unit)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Unit, E> {
                i32::try_from(number)
                    .map(Unit)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Unit, E> {
                match name {
                    // The enum of answers has it, and its number is taken: so is its name.
                    "WEEK" => Ok(Unit(7)),
                    _ => RateLimitUnit::from_str_name(name)
                        .map(|unit| Unit(unit.into()))
                        .ok_or_else(|| E::custom("no unit of that name")),
                }
            }
        }

        deserializer.deserialize_any(NameOrNumber)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(json: &str) -> RateLimitDescriptor {
        let body = format!(r#"{{"domain":"d","descriptors":[{json}]}}"#);
        request(body.as_bytes()).unwrap().descriptors.remove(0)
    }

    #[test]
    fn both_spellings_and_both_kinds_of_numbers_are_read() {
        for (json, hits) in [
            (r#"{"hits_addend":2}"#, 2),
            (r#"{"hitsAddend":"3"}"#, 3),
            (r#"{"hitsAddend":4.0}"#, 4),
            (r#"{"hitsAddend":1e3}"#, 1_000),
            (r#"{"hitsAddend":null}"#, 0),
            (r#"{"hitsAddend":4294967295}"#, u32::MAX),
            ("{}", 0),
        ] {
            assert_eq!(
                request(json.as_bytes()).unwrap().hits_addend,
                hits,
                "{json}"
            );
        }
        for (json, hits) in [
            ("{}", None),
            (r#"{"hitsAddend":null}"#, None),
            (r#"{"hitsAddend":0}"#, Some(0)),
            (r#"{"hits_addend":"18446744073709551615"}"#, Some(u64::MAX)),
        ] {
            assert_eq!(descriptor(json).hits_addend, hits, "{json}");
        }
        assert!(descriptor(r#"{"is_negative_hits":true}"#).is_negative_hits);
        assert!(descriptor(r#"{"isNegativeHits":true}"#).is_negative_hits);
    }

    #[test]
    fn units_are_names_or_numbers() {
        for (unit, number) in [
            (r#""HOUR""#, 3),
            (r#""WEEK""#, 7),
            ("7", 7),
            ("99", 99),
            ("-1", -1),
            ("null", 0),
            (r#""UNKNOWN""#, 0),
        ] {
            let limit = descriptor(&format!(
                r#"{{"limit":{{"requestsPerUnit":1,"unit":{unit}}}}}"#
            ));
            assert_eq!(limit.limit.unwrap().unit, number, "{unit}");
        }
        assert_eq!(descriptor(r#"{"limit":null}"#).limit, None);
    }

    #[test]
    fn anything_else_is_refused() {
        for body in [
            "",
            "}",
            "null",
            "[]",
            r#"["d",[],1]"#,
            r#""d""#,
            r#"{"domain":"d","bogus":1}"#,
            r#"{"domain":1}"#,
            r#"{"domain":"d"} x"#,
            r#"{"domain":"d","domain":"e"}"#,
            r#"{"hitsAddend":1,"hits_addend":1}"#,
            r#"{"hitsAddend":-1}"#,
            r#"{"hitsAddend":1.5}"#,
            r#"{"hitsAddend":"1.5"}"#,
            r#"{"hitsAddend":"+1"}"#,
            r#"{"hitsAddend":""}"#,
            r#"{"hitsAddend":4294967296}"#,
            r#"{"hitsAddend":true}"#,
            r#"{"descriptors":{}}"#,
            r#"{"descriptors":[null]}"#,
            r#"{"descriptors":[[]]}"#,
            r#"{"descriptors":[{"entries":[["k","v"]]}]}"#,
            r#"{"descriptors":[{"entries":[{"key":"k","valu":"v"}]}]}"#,
            r#"{"descriptors":[{"limit":[1,2]}]}"#,
            r#"{"descriptors":[{"limit":{"unit":"hour"}}]}"#,
            r#"{"descriptors":[{"limit":{"unit":"EON"}}]}"#,
            r#"{"descriptors":[{"limit":{"unit":1.5}}]}"#,
            "{\"domain\":\"\u{1}\"}",
        ] {
            assert!(request(body.as_bytes()).is_err(), "{body}");
        }
        assert!(request(b"{\"domain\":\"\xff\"}").is_err());
    }
}
