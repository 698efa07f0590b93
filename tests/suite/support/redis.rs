//! A private redis-server per test: own directory, own socket, nothing persisted, gone with the value.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use redis::{Commands as _, Connection, ConnectionAddr, IntoConnectionInfo as _};

/// How long a condition may take to come true before a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct RedisServer {
    directory: tempfile::TempDir,
    child: Child,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory for Redis");
        let child = spawn(&directory);
        let server = Self { directory, child };
        server.wait_until_ready();
        server
    }

    /// Has it listen on a free TCP port too, and says which.
    pub(crate) fn open_port(&self) -> u16 {
        let mut connection = self.connection();
        loop {
            let free = std::net::TcpListener::bind(("127.0.0.1", 0))
                .and_then(|listener| listener.local_addr())
                .expect("a free port")
                .port();
            // Another process may have taken it in between.
            let mut command = redis::cmd("CONFIG");
            command.arg("SET").arg("port").arg(free);
            if command.query::<()>(&mut connection).is_ok() {
                return free;
            }
        }
    }

    /// Has it listen there too; port 0 is a free one of the loopback.
    pub(crate) fn open_at(&self, at: std::net::SocketAddr) -> std::net::SocketAddr {
        if at.port() == 0 {
            return ([127, 0, 0, 1], self.open_port()).into();
        }
        let mut connection = self.connection();
        for (name, value) in [
            ("protected-mode", "no".to_owned()),
            ("bind", at.ip().to_string()),
            ("port", at.port().to_string()),
        ] {
            let mut command = redis::cmd("CONFIG");
            command.arg("SET").arg(name).arg(value);
            command
                .query::<()>(&mut connection)
                .expect("the address is there and free");
        }
        at
    }

    /// The path of its Unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("redis.sock")
    }

    pub(crate) fn url(&self) -> String {
        self.socket().display().to_string()
    }

    /// A connection of the test's own.
    pub(crate) fn connection(&self) -> Connection {
        let info = ConnectionAddr::Unix(self.socket())
            .into_connection_info()
            .expect("a path is an address");
        redis::Client::open(info)
            .and_then(|client| client.get_connection())
            .expect("the test's Redis answers")
    }

    /// The same, where it asks for a password.
    pub(crate) fn connection_with(&self, password: &str) -> Connection {
        let mut connection = self.connection();
        redis::cmd("AUTH")
            .arg(password)
            .query::<()>(&mut connection)
            .expect("the password is right");
        connection
    }

    /// Ends the process as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("the server is ours to kill");
        self.child.wait().expect("a killed server ends");
        // A crashed server leaves its socket behind, and the next one replaces it; until then nobody shall connect.
        let _ = std::fs::remove_file(self.socket());
    }

    /// Starts it anew, empty, at the same address.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.directory);
        self.wait_until_ready();
    }

    /// Sends the process a signal by name, as `STOP` or `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status();
        assert!(status.expect("kill(1) is there").success());
    }

    /// Every key that never expires: there must be none, ever.
    pub(crate) fn keys_without_expiry(&self) -> Vec<String> {
        let mut connection = self.connection();
        let keys: Vec<String> = connection.keys("*").expect("KEYS answers");
        keys.into_iter()
            .filter(|key| {
                let ttl: i64 = connection.ttl(key).expect("TTL answers");
                ttl == -1
            })
            .collect()
    }

    #[track_caller]
    pub(crate) fn no_key_without_expiry(&self) {
        assert_eq!(self.keys_without_expiry(), Vec::<String>::new());
    }

    /// How often `command` was called, as `cmdstat_` names it.
    pub(crate) fn calls_of(&self, command: &str) -> u64 {
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query(&mut self.connection())
            .expect("INFO answers");
        info.lines()
            .find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")))
            .and_then(|rest| rest.split(',').next())
            .map_or(0, |calls| calls.parse().expect("a number of calls"))
    }

    fn wait_until_ready(&self) {
        let started = Instant::now();
        while !self.answers() {
            assert!(started.elapsed() < PATIENCE, "redis-server does not start");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn answers(&self) -> bool {
        let mut pong = [0; 7];
        UnixStream::connect(self.socket())
            .and_then(|mut stream| {
                stream.set_read_timeout(Some(Duration::from_secs(1)))?;
                stream.write_all(b"PING\r\n")?;
                stream.read_exact(&mut pong)
            })
            .is_ok()
            && &pong == b"+PONG\r\n"
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // SIGKILL ends a stopped process too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(directory: &tempfile::TempDir) -> Child {
    Command::new("redis-server")
        .current_dir(directory.path())
        .args(["--port", "0", "--unixsocket", "redis.sock"])
        .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed")
}
