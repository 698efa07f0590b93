//! The real binary as a process of its own: for signals, environments and several replicas.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use serde_json::Value;

use super::eventually;

/// A running `palang`; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
}

/// What a process holds of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) threads: u64,
    pub(crate) descriptors: u64,
    /// Bytes.
    pub(crate) memory: u64,
}

impl Process {
    /// Starts the binary with nothing in its environment but `env`, on free ports of the loopback.
    pub(crate) fn start(args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_as(env!("CARGO_BIN_EXE_palang"), args, env)
    }

    /// The same under another name of the binary.
    pub(crate) fn start_as(binary: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut all = free_ports();
        all.extend(env.iter().copied());
        let all: Vec<_> = all.into_iter().collect();
        Self::start_bare(binary, args, &all)
    }

    /// Starts a command that becomes the binary, with nothing in its environment but `env`.
    pub(crate) fn start_bare(command: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut child = Command::new(command)
            .args(args)
            .env_clear()
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let stderr = child.stderr.take().expect("stderr is piped");
        let sink = Arc::clone(&lines);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                sink.lock().expect("no panic while held").push(line);
            }
        });
        Self {
            child,
            lines,
            reader: Some(reader),
        }
    }

    /// The address that the process says it listens on for `port` (`grpc`, `http`, `metrics`, `debug`).
    pub(crate) async fn address(&self, port: &str) -> SocketAddr {
        eventually("the process says where it listens", async || {
            self.records().into_iter().find_map(|record| {
                (record["@message"] == "listening" && record["port"] == port)
                    .then(|| record["address"].as_str()?.parse().ok())
                    .flatten()
            })
        })
        .await
    }

    /// Waits until it is ready.
    pub(crate) async fn ready(&self) {
        let http = self.address("http").await;
        eventually("the process is ready", async || {
            let answer = super::http::get(http, "/readyz", &[]).await.ok()?;
            (answer.status == 200).then_some(())
        })
        .await;
    }

    /// The value of a metric; 0 when it is not there.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let at = self.address("metrics").await;
        let answer = super::http::get(at, "/metrics", &[])
            .await
            .expect("the metrics port answers");
        let lines = answer.body.lines();
        lines
            .filter_map(|line| line.rsplit_once(' '))
            .find(|(found, _)| *found == name)
            .map_or(0, |(_, value)| value.parse().expect("a whole number"))
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it holds now, as the system counts it.
    pub(crate) fn usage(&self) -> Usage {
        let of = |what: &str| format!("/proc/{}/{what}", self.id());
        let status = std::fs::read_to_string(of("status")).expect("it runs");
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|rest| rest.split_whitespace().next());
            word.and_then(|word| word.parse().ok()).expect(name)
        };
        Usage {
            threads: number("Threads:"),
            descriptors: std::fs::read_dir(of("fd")).expect("it runs").count() as u64,
            memory: number("VmRSS:") * 1024,
        }
    }

    /// The log so far, as JSON records.
    pub(crate) fn records(&self) -> Vec<Value> {
        self.log()
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.lines.lock().expect("no panic while held").clone()
    }

    /// Sends a signal by name, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.id().to_string()])
            .status()
            .expect("kill runs");
        assert!(status.success(), "kill -s {name}");
    }

    /// Waits for the end.
    pub(crate) async fn wait(&mut self, patience: Duration) -> ExitStatus {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "still running after {patience:?}; log:\n{}",
                self.log().join("\n")
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            // It ended with the process's stderr; a panic in it has already been printed.
            let _ = reader.join();
        }
    }
}

fn free_ports() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", "0"),
        ("HOST", "127.0.0.1"),
        ("PORT", "0"),
        ("PROMETHEUS_ADDR", "127.0.0.1:0"),
        ("DEBUG_HOST", "127.0.0.1"),
        ("DEBUG_PORT", "0"),
        ("LOG_FORMAT", "json"),
        ("LOG_LEVEL", "info"),
    ])
}
