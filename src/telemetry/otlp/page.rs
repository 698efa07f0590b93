//! The page that Prometheus reads, taken apart again. What is sent is what is shown there, and so neither can have what
//! the other lacks.

/// One metric of the page.
#[derive(Debug, PartialEq)]
pub(super) struct Family<'p> {
    pub(super) name: &'p str,
    pub(super) help: &'p str,
    pub(super) kind: &'p str,
    pub(super) samples: Vec<Sample<'p>>,
}

/// One line of a metric.
#[derive(Debug, PartialEq)]
pub(super) struct Sample<'p> {
    /// The metric's, or for a histogram with `_bucket`, `_sum` or `_count` behind it.
    pub(super) name: &'p str,
    pub(super) labels: Vec<(&'p str, String)>,
    pub(super) value: &'p str,
}

/// Reads a page in the text format 0.0.4, as we write it: the lines of a metric come after its type.
pub(super) fn families(page: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let mut help = ("", "");
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text.split_once(' ').unwrap_or((text, ""));
        } else if let Some(text) = line.strip_prefix("# TYPE ") {
            let (name, kind) = text.split_once(' ').unwrap_or((text, "untyped"));
            families.push(Family {
                name,
                help: if help.0 == name { help.1 } else { "" },
                kind,
                samples: Vec::new(),
            });
        } else if let Some(sample) = sample(line)
            && let Some(family) = families.last_mut()
        {
            family.samples.push(sample);
        }
    }
    families
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches(',');
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label, value));
            rest = after;
        }
    }
    Some(Sample {
        name,
        labels,
        value: rest.trim(),
    })
}

/// The text up to the closing quote, and what comes after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_as_it_was_written() {
        let page = "# HELP a_total What a is.\n# TYPE a_total counter\na_total{x=\"1, }\\\"\\\\\\n\",y=\"\"} 3\na_total 4\n\
                    # TYPE b gauge\nb 1.5\n";
        let found = families(page);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].name, found[0].help, found[0].kind),
            ("a_total", "What a is.", "counter")
        );
        assert_eq!(
            found[0].samples[0],
            Sample {
                name: "a_total",
                labels: vec![("x", "1, }\"\\\n".to_owned()), ("y", String::new())],
                value: "3",
            }
        );
        assert_eq!(found[0].samples[1].value, "4");
        assert_eq!((found[1].help, found[1].samples[0].value), ("", "1.5"));
    }
}
