//! Rules for tests, through the loader that the service uses.

use palang::rules::{
    CompileError,
    compile::{self, Domains, Warnings},
    source::{Layout, Loaded, Options, load},
};

/// A rule file of this text; gone with the value.
pub(crate) fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new()
        .suffix(".yaml")
        .tempfile()
        .expect("a temporary file");
    std::io::Write::write_all(&mut file, text.as_bytes()).expect("the rules are written");
    file
}

/// Loads files as a directory of them would be loaded.
pub(crate) fn load_files(
    files: &[(String, String)],
    domains: Domains,
) -> Result<Loaded, CompileError> {
    let directory = tempfile::tempdir().expect("a directory for the rules");
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).expect("the rules are written");
    }
    let options = Options {
        compile: compile::Options {
            domains,
            warnings: Warnings::Told,
        },
        ..Options::default()
    };
    load(&Layout::paths([directory.path().to_owned()]), &options)
}
