//! The processes of a benchmark, and what the system says of them.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::Value;

use crate::floor;

/// A running process; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

/// A server and where it listens.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
}

impl Process {
    /// CPU time of all its threads so far, user and system.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let mut total = 0;
        for task in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
            // In nanoseconds, where /proc/<pid>/stat counts hundredths of a second.
            let path = task?.path().join("schedstat");
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let nanos = text.split_whitespace().next().unwrap_or_default();
            total += nanos.parse::<u64>().context("schedstat of another form")?;
        }
        Ok(Duration::from_nanos(total))
    }

    /// Bytes of memory it has in use.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let kibibytes = text
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|rest| rest.split_whitespace().next())
            .context("no VmRSS")?;
        Ok(kibibytes.parse::<u64>()? * 1_024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the floor: this program once more.
pub(crate) fn floor() -> anyhow::Result<Server> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(floor::ARGUMENT)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("stdout is piped")?).read_line(&mut line)?;
    let process = Process { child };
    Ok(Server {
        process,
        address: line
            .trim()
            .parse()
            .context("the floor says where it listens")?,
    })
}

/// Starts the service with these rules.
pub(crate) fn palang(rules: &Path, env: &[(&str, &str)]) -> anyhow::Result<Server> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_palang"))
        .arg("serve")
        .arg("--rules")
        .arg(rules)
        .env_clear()
        .envs([
            ("GRPC_HOST", "127.0.0.1"),
            ("GRPC_PORT", "0"),
            ("HOST", "127.0.0.1"),
            ("PORT", "0"),
            ("PROMETHEUS_ADDR", "127.0.0.1:0"),
            ("DEBUG_HOST", "127.0.0.1"),
            ("DEBUG_PORT", "0"),
            ("LOG_FORMAT", "json"),
            ("LOG_LEVEL", "info"),
            // A stall of a busy machine is to be seen in the times, not as an error.
            ("STORE_TIMEOUT", "5s"),
        ])
        .envs(env.iter().copied())
        .stderr(Stdio::piped())
        .spawn()?;
    let stderr = child.stderr.take().context("stderr is piped")?;
    let process = Process { child };
    let mut log = BufReader::new(stderr);
    let address = listening(&mut log)?;
    // A full pipe would stop the service.
    thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    Ok(Server { process, address })
}

fn listening(log: &mut impl BufRead) -> anyhow::Result<SocketAddr> {
    let mut read = String::new();
    for line in log.by_ref().lines() {
        let line = line?;
        if let Ok(record) = serde_json::from_str::<Value>(&line)
            && record["port"] == "grpc"
            && let Some(address) = record["address"].as_str()
        {
            return Ok(address.parse()?);
        }
        read.push_str(&line);
        read.push('\n');
    }
    anyhow::bail!("the service did not start:\n{read}")
}

/// Starts a Redis that keeps nothing.
pub(crate) fn redis(directory: &Path) -> anyhow::Result<Server> {
    let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
    let child = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
        .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .arg("--dir")
        .arg(directory)
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start redis-server")?;
    let process = Process { child };
    let patience = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(address).is_err() {
        anyhow::ensure!(Instant::now() < patience, "redis-server does not answer");
        thread::sleep(Duration::from_millis(10));
    }
    Ok(Server { process, address })
}

/// Starts a collector that takes everything and keeps nothing. It ends with this program.
pub(crate) fn collector() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, axum::Router::new().fallback(async || ())).await
        })
    });
    Ok(address)
}

/// Script calls that the Redis at `address` has run.
pub(crate) fn script_calls(address: SocketAddr) -> anyhow::Result<u64> {
    let client = redis::Client::open(format!("redis://{address}"))?;
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut client.get_connection()?)?;
    let calls = info
        .lines()
        .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="))
        .and_then(|rest| rest.split(',').next());
    Ok(calls.map_or(Ok(0), str::parse)?)
}
