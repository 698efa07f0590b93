//! An authority and certificates by it, made by openssl for one test.

use std::{path::PathBuf, process::Command};

pub(crate) struct Authority {
    directory: tempfile::TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory for certificates");
        let authority = Self { directory };
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca \
             -keyout ca.key -out ca.crt",
        );
        authority
    }

    /// A certificate for `subject` in `name.crt` and `name.key`; `names` are `DNS:..` and `IP:..`.
    pub(crate) fn issue(&self, name: &str, names: &str) {
        std::fs::write(self.file("ext"), format!("subjectAltName={names}\n")).expect("written");
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out {name}.crt"
        ));
    }

    /// Has openssl write one of its files in another way.
    pub(crate) fn convert(&self, words: &str, to: &str) {
        self.openssl(&format!("{words} -out {to}"));
    }

    /// The path of one of its files.
    pub(crate) fn path(&self, file: &str) -> String {
        self.file(file).display().to_string()
    }

    fn file(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    fn openssl(&self, words: &str) {
        let output = Command::new("openssl")
            .args(words.split_ascii_whitespace())
            .current_dir(self.directory.path())
            .output()
            .expect("openssl is installed");
        assert!(
            output.status.success(),
            "openssl {words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
