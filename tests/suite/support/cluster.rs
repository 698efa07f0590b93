//! Redis servers on TCP ports: alone, as a cluster, behind sentinels.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use redis::{Connection, FromRedisValue, RedisResult};

use super::redis::PATIENCE;

/// A server on a port of the loopback; gone with the value.
pub(crate) struct Port {
    // Holds its files.
    _directory: tempfile::TempDir,
    child: Child,
    pub(crate) port: u16,
}

impl Port {
    /// A redis-server with `arguments`.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_as("redis-server", arguments, |_, port| {
            [
                ["--port".to_owned(), port.to_string()],
                ["--save".to_owned(), String::new()],
                ["--appendonly".to_owned(), "no".to_owned()],
            ]
            .concat()
        })
    }

    /// A redis-server that speaks TLS only.
    pub(crate) fn encrypted(arguments: &[&str]) -> Self {
        Self::start_as("redis-server", arguments, |_, port| {
            [
                ["--port".to_owned(), "0".to_owned()],
                ["--tls-port".to_owned(), port.to_string()],
                ["--save".to_owned(), String::new()],
            ]
            .concat()
        })
    }

    /// A sentinel that watches `primary`, alone enough to promote another one.
    pub(crate) fn sentinel(primary: u16, more: &str) -> Self {
        Self::start_as("redis-sentinel", &[], |directory, port| {
            let config = directory.join("sentinel.conf");
            let text = format!(
                "port {port}\nsentinel monitor main 127.0.0.1 {primary} 1\n\
                 sentinel down-after-milliseconds main 400\nsentinel failover-timeout main 2000\n{more}\n"
            );
            std::fs::write(&config, text).expect("the configuration is written");
            vec![config.display().to_string()]
        })
    }

    /// A sentinel that speaks TLS only, and asks a certificate of everybody. To the primary it need not get through.
    pub(crate) fn encrypted_sentinel(primary: u16, more: &str) -> Self {
        Self::start_as("redis-sentinel", &[], |directory, port| {
            let config = directory.join("sentinel.conf");
            let text = format!(
                "port 0\ntls-port {port}\ntls-auth-clients yes\n{more}\n\
                 sentinel monitor main 127.0.0.1 {primary} 1\n"
            );
            std::fs::write(&config, text).expect("the configuration is written");
            vec![config.display().to_string()]
        })
    }

    fn start_as(
        binary: &str,
        arguments: &[&str],
        place: impl Fn(&Path, u16) -> Vec<String>,
    ) -> Self {
        // Another process may take the port in between: then the server ends, and another port is tried.
        for _ in 0..20 {
            let directory = tempfile::tempdir().expect("a directory for Redis");
            let port = free_port();
            let mut child = Command::new(binary)
                .current_dir(directory.path())
                .args(place(directory.path(), port))
                .args(arguments)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis is installed");
            let started = Instant::now();
            while child.try_wait().expect("a child").is_none() {
                if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Self {
                        _directory: directory,
                        child,
                        port,
                    };
                }
                assert!(started.elapsed() < PATIENCE, "{binary} does not start");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        panic!("no free port for {binary}");
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn connection(&self) -> Connection {
        redis::Client::open(format!("redis://{}", self.address()))
            .and_then(|client| client.get_connection())
            .expect("the test's Redis answers")
    }

    /// Runs one command, its words separated by spaces.
    pub(crate) fn ask<T: FromRedisValue>(&self, words: &str) -> RedisResult<T> {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().expect("a command"));
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.connection())
    }

    pub(crate) fn run(&self, words: &str) {
        self.ask::<()>(words).expect(words);
    }

    pub(crate) fn calls_of(&self, command: &str) -> u64 {
        let info: String = self.ask("INFO commandstats").expect("INFO answers");
        info.lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")))
            .and_then(|rest| rest.split(',').next())
            .map_or(0, |calls| calls.parse().expect("a number of calls"))
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.ask("KEYS *").expect("KEYS answers")
    }

    #[track_caller]
    pub(crate) fn no_key_without_expiry(&self) {
        for key in self.keys() {
            let ttl: i64 = redis::cmd("TTL")
                .arg(&key)
                .query(&mut self.connection())
                .expect("TTL answers");
            assert_ne!(ttl, -1, "{key} never expires");
        }
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(status.expect("kill(1) is there").success());
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server is ours to kill");
        self.child.wait().expect("a killed server ends");
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Three primaries.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Port>,
    node_timeout: &'static str,
}

impl Cluster {
    /// One whose nodes wait for each other.
    pub(crate) fn start() -> Self {
        Self::with_node_timeout("60000")
    }

    /// One whose nodes take each other for dead after so many milliseconds.
    pub(crate) fn with_node_timeout(node_timeout: &'static str) -> Self {
        let nodes: Vec<Port> = (0..3).map(|_| Self::node(node_timeout)).collect();
        for (index, node) in nodes.iter().enumerate() {
            let (from, to) = (index * 16_384 / 3, (index + 1) * 16_384 / 3 - 1);
            node.run(&format!("CLUSTER ADDSLOTSRANGE {from} {to}"));
            node.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
        }
        for other in &nodes[1..] {
            let bus: Vec<String> = other.ask("CONFIG GET cluster-port").expect("CONFIG GET");
            nodes[0].run(&format!("CLUSTER MEET 127.0.0.1 {} {}", other.port, bus[1]));
        }
        let cluster = Self {
            nodes,
            node_timeout,
        };
        let started = Instant::now();
        while !cluster.is_whole() {
            assert!(started.elapsed() < PATIENCE, "the cluster does not form");
            std::thread::sleep(Duration::from_millis(20));
        }
        cluster
    }

    fn node(node_timeout: &str) -> Port {
        Port::start(&[
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            node_timeout,
            // The bus's own port has to be a legal one, and free.
            "--cluster-port",
            &free_port().to_string(),
        ])
    }

    /// Adds a replica of a primary.
    pub(crate) fn add_replica(&mut self, of: usize) {
        let replica = Self::node(self.node_timeout);
        let bus: Vec<String> = replica.ask("CONFIG GET cluster-port").expect("CONFIG GET");
        self.nodes[0].run(&format!(
            "CLUSTER MEET 127.0.0.1 {} {}",
            replica.port, bus[1]
        ));
        let started = Instant::now();
        // It has to know the primary first.
        while replica
            .ask::<()>(&format!("CLUSTER REPLICATE {}", self.id(of)))
            .is_err()
        {
            assert!(started.elapsed() < PATIENCE, "the replica meets nobody");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.nodes.push(replica);
    }

    fn is_whole(&self) -> bool {
        self.nodes.iter().all(|node| {
            let info: String = node.ask("CLUSTER INFO").expect("CLUSTER INFO");
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        })
    }

    pub(crate) fn url(&self) -> String {
        self.nodes
            .iter()
            .map(Port::address)
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Begins to move `slot` from one node to another: what is new goes to the other from now on.
    pub(crate) fn begin_move(&self, slot: u16, from: usize, to: usize) {
        self.nodes[to].run(&format!(
            "CLUSTER SETSLOT {slot} IMPORTING {}",
            self.id(from)
        ));
        self.nodes[from].run(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", self.id(to)));
    }

    /// Moves some of the keys of a moving slot. False when there was none left.
    pub(crate) fn move_keys(&self, slot: u16, from: usize, to: usize, most: usize) -> bool {
        let keys: Vec<String> = self.nodes[from]
            .ask(&format!("CLUSTER GETKEYSINSLOT {slot} {most}"))
            .expect("GETKEYSINSLOT");
        for key in &keys {
            let moved: RedisResult<String> = redis::cmd("MIGRATE")
                .arg("127.0.0.1")
                .arg(self.nodes[to].port)
                .arg(key)
                .arg(0)
                .arg(5_000)
                .query(&mut self.nodes[from].connection());
            moved.expect("migrated");
        }
        !keys.is_empty()
    }

    /// Ends the move: the slot is the other's.
    pub(crate) fn end_move(&self, slot: u16, to: usize) {
        let id = self.id(to);
        self.nodes[to].run(&format!("CLUSTER SETSLOT {slot} NODE {id}"));
        for node in &self.nodes {
            node.run(&format!("CLUSTER SETSLOT {slot} NODE {id}"));
        }
    }

    fn id(&self, index: usize) -> String {
        self.nodes[index].ask("CLUSTER MYID").expect("MYID")
    }
}

pub(crate) fn free_port() -> u16 {
    loop {
        let port = std::net::TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port();
        // Some servers use the port 10,000 above as well.
        if port < 55_000 {
            return port;
        }
    }
}
