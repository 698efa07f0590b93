//! A real Prometheus that scrapes one address; gone with the value.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use super::http;

#[derive(Debug)]
pub(crate) struct Prometheus {
    child: Child,
    at: SocketAddr,
    _directory: TempDir,
}

impl Prometheus {
    /// Scrapes the metrics at `target` five times a second.
    pub(crate) fn start(target: SocketAddr) -> Self {
        Self::scraping(&[target])
    }

    /// Scrapes the metrics of several replicas five times a second, as in a namespace `edge`.
    pub(crate) fn scraping(targets: &[SocketAddr]) -> Self {
        let directory = tempfile::tempdir().expect("a directory for Prometheus");
        let config = directory.path().join("prometheus.yaml");
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let text = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n- job_name: palang\n  \
             static_configs: [{{targets: {targets:?}, labels: {{namespace: edge}}}}]\n"
        );
        std::fs::write(&config, text).expect("the configuration is written");
        let at = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.path().display()
            ))
            .arg(format!("--web.listen-address={at}"))
            .arg("--enable-feature=exemplar-storage")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is installed: scripts/tools.sh");
        Self {
            child,
            at,
            _directory: directory,
        }
    }

    /// What `path` of its API answers, once it does.
    pub(crate) async fn api(&self, path: &str) -> Option<Value> {
        let answer = http::get(self.at, path, &[]).await.ok()?;
        let mut answer: Value = serde_json::from_str(&answer.body).ok()?;
        Some(answer["data"].take())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
