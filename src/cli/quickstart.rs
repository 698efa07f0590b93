//! `palang quickstart`.

use std::{fs, io, path::Path, process::ExitCode};

use tempfile::TempDir;

/// Where a clone of the project has its example rules.
const DIRECTORY: &str = "examples/quickstart";

/// The same for whoever has the program alone.
const RULES: &str = include_str!("../../examples/quickstart/rules.yaml");

pub(super) fn run() -> ExitCode {
    if Path::new(DIRECTORY).is_dir() {
        return serve(Path::new(DIRECTORY));
    }
    let unpacked = match unpack() {
        Ok(unpacked) => unpacked,
        Err(cause) => {
            eprintln!(
                "palang: cannot write the example rules to a directory of their own: {cause}"
            );
            return ExitCode::FAILURE;
        }
    };
    let code = serve(unpacked.path());
    if let Err(cause) = unpacked.close() {
        eprintln!("palang: cannot remove the example rules: {cause}");
    }
    code
}

fn serve(rules: &Path) -> ExitCode {
    super::run([
        "palang".into(),
        "serve".into(),
        "--rules".into(),
        rules.as_os_str().to_owned(),
    ])
}

fn unpack() -> io::Result<TempDir> {
    let directory = tempfile::Builder::new()
        .prefix("palang-quickstart-")
        .tempdir()?;
    fs::write(directory.path().join("rules.yaml"), RULES)?;
    Ok(directory)
}
