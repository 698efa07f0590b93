//! What a scalar of YAML 1.1 stands for, in the reading of the Go library that envoyproxy/ratelimit uses: existing
//! rule files are to mean the same here.

/// A scalar as written.
#[derive(Debug)]
pub(super) struct Scalar {
    /// The source text, after escapes and folding.
    pub(super) text: Box<str>,
    pub(super) form: Form,
}

/// Whether the text may stand for something else than itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    /// In quotes, as a block, or with a tag that makes it text.
    Quoted,
}

/// What a scalar stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    Null,
    Bool(bool),
    /// Within the 64 bit integers, with or without sign.
    Int(i128),
    Float(f64),
    Text,
}

impl Scalar {
    pub(super) fn is_null(&self) -> bool {
        self.meaning() == Meaning::Null
    }

    pub(super) fn meaning(&self) -> Meaning {
        if self.form == Form::Quoted {
            return Meaning::Text;
        }
        match &*self.text {
            "" | "~" | "null" | "Null" | "NULL" => Meaning::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                Meaning::Bool(true)
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off"
            | "OFF" => Meaning::Bool(false),
            text => int(text)
                .map(Meaning::Int)
                .or_else(|| float(text).map(Meaning::Float))
                .unwrap_or(Meaning::Text),
        }
    }

    /// The tag that an error message gives it.
    pub(super) fn tag(&self) -> &'static str {
        match self.meaning() {
            Meaning::Null => "!!null",
            Meaning::Bool(_) => "!!bool",
            Meaning::Int(_) => "!!int",
            Meaning::Float(_) => "!!float",
            Meaning::Text => "!!str",
        }
    }
}

/// `12`, `-1`, `+5`, `1_000`, `0x10`, `0b101`, `0o17` and `017`, which is 15.
fn int(text: &str) -> Option<i128> {
    let (negative, digits) = signed(text)?;
    let digits = digits.replace('_', "");
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    // A second sign is for the parser below, not for YAML.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let size = i128::from_str_radix(digits, radix).ok()?;
    let value = if negative { -size } else { size };
    (i128::from(i64::MIN)..=i128::from(u64::MAX))
        .contains(&value)
        .then_some(value)
}

/// `1.5`, `.5`, `5.`, `1e3`, `.inf`, `.nan`; and what looks like an integer and is none: `08`, or too large.
fn float(text: &str) -> Option<f64> {
    match text {
        ".nan" | ".NaN" | ".NAN" => return Some(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Some(f64::NEG_INFINITY),
        _ => {}
    }
    let (_, number) = signed(text)?;
    let number = number.replace('_', "");
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (number.as_str(), None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !exponent.is_empty() && digits(exponent)
    });
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 || !exponent_fits {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// Splits a sign off; `None` for what cannot be a number at all.
fn signed(text: &str) -> Option<(bool, &str)> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    rest.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        .then_some((negative, rest))
}

#[cfg(test)]
mod tests {
    use super::{Form, Meaning, Scalar};

    fn plain(text: &str) -> Meaning {
        Scalar {
            text: text.into(),
            form: Form::Plain,
        }
        .meaning()
    }

    #[test]
    fn integers_are_those_of_yaml_1_1() {
        for (text, value) in [
            ("0", 0),
            ("10", 10),
            ("010", 8),
            ("+5", 5),
            ("-1", -1),
            ("1_000", 1000),
            ("0x10", 16),
            ("0XfF", 255),
            ("0b101", 5),
            ("0o17", 15),
            ("-0x10", -16),
            ("18446744073709551615", i128::from(u64::MAX)),
        ] {
            assert_eq!(plain(text), Meaning::Int(value), "{text}");
        }
    }

    #[test]
    fn what_is_not_whole_is_a_float_or_text() {
        for text in [
            "08",
            "1.5",
            ".5",
            "5.",
            "1e3",
            "-1E-3",
            "9999999999999999999999",
            ".inf",
        ] {
            assert!(matches!(plain(text), Meaning::Float(_)), "{text}");
        }
        for text in [
            "abc",
            "1:30",
            "0x",
            "0b2",
            "2024-01-01",
            "1.2.3",
            "+",
            "-",
            ".",
            "--1",
            "0x-1",
            "1e",
            "_1",
            "<<",
            "tRue",
        ] {
            assert_eq!(plain(text), Meaning::Text, "{text}");
        }
    }

    #[test]
    fn quotes_make_text() {
        let quoted = Scalar {
            text: "5".into(),
            form: Form::Quoted,
        };
        assert_eq!(quoted.meaning(), Meaning::Text);
        assert_eq!(plain("No"), Meaning::Bool(false));
        assert_eq!(plain("~"), Meaning::Null);
    }
}
