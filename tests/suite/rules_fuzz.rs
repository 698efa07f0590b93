//! Whatever is in a rule file, it is loaded or refused: nothing panics, and nothing is refused without a reason.

use palang::rules::{
    Source,
    compile::{Options, compile},
};
use proptest::{collection::vec, prelude::*, sample::select};

const RULES: &str = include_str!("../../examples/quickstart/rules.yaml");

const PIECES: [&str; 40] = [
    "domain: d\n",
    "descriptors:\n",
    "- key: k\n",
    "  value: v*\n",
    "  rate_limit: ",
    "{unit: day, ",
    "requests_per_unit: 5}",
    "\n",
    "  ",
    "- ",
    "? ",
    ": ",
    "&a ",
    "*a",
    "<<: ",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\"",
    "'",
    "|\n",
    ">-\n",
    "---\n",
    "...\n",
    "%YAML 1.1\n",
    "!!str ",
    "!x ",
    "~",
    "\t",
    "\r\n",
    "#",
    "\u{feff}",
    "0x",
    "-1",
    "1.5",
    "\u{85}",
    "replaces: [{name: n}]",
    "metadata: {a: [1, b]}",
];

fn check(text: Vec<u8>) {
    let sources = [Source {
        name: "fuzz.yaml".into(),
        text,
    }];
    if let Err(error) = compile(&sources, Options::default()) {
        assert!(!error.mistakes.is_empty());
        for mistake in error.mistakes {
            assert!(!mistake.message.is_empty());
            assert!(
                !mistake.message.contains('\n'),
                "one line for each mistake: {mistake}"
            );
        }
    }
}

proptest! {
    #[test]
    fn any_bytes(text in vec(any::<u8>(), 0..400)) {
        check(text);
    }

    #[test]
    fn any_pieces_of_yaml(pieces in vec(select(PIECES.as_slice()), 0..40)) {
        check(pieces.concat().into_bytes());
    }

    #[test]
    fn rules_with_some_bytes_changed(
        edits in vec((0..RULES.len(), any::<u8>()), 1..6),
        cut in 0..RULES.len(),
    ) {
        let mut text = RULES.as_bytes().to_vec();
        for (at, byte) in edits {
            text[at] = byte;
        }
        check(text.clone());
        text.truncate(cut);
        check(text);
    }

    #[test]
    fn rules_with_pieces_put_in(pieces in vec((0..RULES.len(), select(PIECES.as_slice())), 1..6)) {
        let mut text = RULES.as_bytes().to_vec();
        for (at, piece) in pieces {
            text.splice(at..at, piece.bytes());
        }
        check(text);
    }
}
