use super::{At, Documents, Value};

fn fault(bytes: &[u8]) -> (At, String) {
    let documents = Documents::read(bytes);
    assert_eq!(documents.faults.len(), 1, "{documents:?}");
    documents.faults.into_iter().next().expect("one fault")
}

fn check_fault(bytes: &[u8], line: u32, column: u32, phrase: &str) {
    let (at, message) = fault(bytes);
    assert!(message.contains(phrase), "{message}");
    assert_eq!(at, At { line, column }, "{message}");
}

#[test]
fn places_count_from_one_and_in_characters() {
    let documents = Documents::read("ä: 日本\nb:\n  - {c: \"d\"}\n".as_bytes());
    let pairs = documents.roots[0].as_map().expect("a map");
    let place = |at: At| (at.line, at.column);
    assert_eq!(place(pairs[0].key.at), (1, 1));
    assert_eq!(place(pairs[0].value.at), (1, 4));
    let Value::List(items) = &pairs[1].value.value else {
        panic!("a list");
    };
    let inner = items[0].as_map().expect("a map");
    assert_eq!(place(inner[0].value.at), (3, 9));
}

#[test]
fn what_is_not_yaml_is_told_with_its_place() {
    check_fault(b"a: b\n\tc: d\n", 2, 1, "indent with spaces");
    check_fault(b"a:\n\tb: c\n", 2, 1, "indent with spaces");
    check_fault(b"a: [1, 2\n", 1, 4, "unclosed bracket");
    check_fault(b"a: b\nc: \xff\n", 2, 4, "not valid UTF-8");
    check_fault(
        b"a: b\nc: d\0e\n",
        2,
        5,
        "control characters are not allowed (U+0000)",
    );
    check_fault(b"a: *nobody\n", 1, 4, "unknown anchor");
    check_fault(b"a: &x [*x]\n", 1, 8, "an anchor contains its own alias");
}

#[test]
fn documents_before_a_fault_are_read() {
    let documents = Documents::read(b"a: b\n---\nc: [\n");
    assert_eq!((documents.roots.len(), documents.faults.len()), (1, 1));
}

#[test]
fn a_small_file_that_stands_for_billions_is_refused() {
    let mut lists = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    let mut merges = "a0: &a0 {x: 1, y: 2}\n".to_owned();
    for level in 1..20 {
        let alias = format!("*a{}, ", level - 1).repeat(9);
        lists += &format!("a{level}: &a{level} [{alias}]\n");
        merges += &format!("a{level}: &a{level} {{<<: [{alias}]}}\n");
    }
    for text in [lists, merges] {
        let (_, message) = fault(text.as_bytes());
        assert!(message.contains("excessive aliasing"), "{message}");
    }
}

#[test]
fn deep_nesting_is_refused_without_overflow() {
    for open in ["[", "{a: ", "- "] {
        let (_, message) = fault(open.repeat(100_000).as_bytes());
        assert!(
            message.contains("nest") || message.contains("recursion"),
            "{message}"
        );
    }
    // Each alias doubles the depth.
    let mut text = "a0: &a0 [[[[x]]]]\n".to_owned();
    for level in 1..20 {
        let inner = format!("{}*a{}{}", "[".repeat(20), level - 1, "]".repeat(20));
        text += &format!("a{level}: &a{level} {inner}\n");
    }
    let (_, message) = fault(text.as_bytes());
    assert!(message.contains("nested deeper than"), "{message}");
}
