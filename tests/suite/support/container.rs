//! A container as a runtime makes one: a root of its own that is read only, mounts, a network with addresses and names,
//! nobody's uid, no capability, and nothing in the environment but what is given. The binary is `/bin/ratelimit` and
//! gets no arguments.
//!
//! That needs root and namespaces. Where there are none it is a process with the same environment on free ports, and
//! says so.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use tempfile::TempDir;

use super::process::Process;

/// Makes the root out of an empty file system, and goes in as nobody. What is mounted there cannot be written to.
const ENTER: &str = r#"
set -e
root=$1 binary=$2 hosts=$3
shift 3
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"
cd "$root"
mkdir bin usr etc proc dev
mount --bind /usr usr
mount -o remount,bind,ro usr
for lib in lib lib32 lib64 libx32; do
  if [ -L /$lib ]; then cp -P /$lib .; elif [ -d /$lib ]; then mkdir $lib; mount --bind /$lib $lib; fi
done
printf '%s' "$hosts" > etc/hosts
echo 'hosts: files' > etc/nsswitch.conf
mount --bind /proc proc
for device in null urandom; do touch dev/$device; mount --bind /dev/$device dev/$device; done
touch bin/ratelimit
mount --bind "$binary" bin/ratelimit
while [ $# -gt 0 ]; do
  mkdir -p ".$2"
  mount --bind "$1" ".$2"
  mount -o remount,bind,ro ".$2"
  shift 2
done
mount -o remount,ro "$root"
unset PWD OLDPWD
exec chroot . /usr/bin/setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs --inh-caps=-all \
  --bounding-set=-all /bin/ratelimit
"#;

/// One that does not run yet.
pub(crate) struct Container {
    network: Option<Network>,
    home: TempDir,
    mounts: Vec<(PathBuf, String)>,
    hosts: String,
}

impl Container {
    pub(crate) fn new() -> Self {
        let network = Network::new();
        if network.is_none() {
            eprintln!("no namespaces here: a process on free ports stands for the container");
        }
        Self {
            network,
            home: tempfile::tempdir().expect("a directory"),
            mounts: Vec::new(),
            hosts: "127.0.0.1 localhost\n".to_owned(),
        }
    }

    /// Mounts a directory at `inside`. Says where the process finds it.
    pub(crate) fn mount(&mut self, outside: &Path, inside: &str) -> String {
        if self.network.is_none() {
            return outside.display().to_string();
        }
        self.mounts.push((outside.to_owned(), inside.to_owned()));
        inside.to_owned()
    }

    /// Where somebody else has to listen to be reached at this port; port 0 where that is not to be had.
    pub(crate) fn neighbour(&self, port: u16) -> SocketAddr {
        match &self.network {
            Some(network) => (network.outside(), port).into(),
            None => (Ipv4Addr::LOCALHOST, 0).into(),
        }
    }

    /// Gives a name to who listens at `at`. Says what the process calls it, with its port.
    pub(crate) fn name(&mut self, name: &str, at: SocketAddr) -> String {
        if self.network.is_none() {
            return format!("localhost:{}", at.port());
        }
        self.hosts.push_str(&format!("{} {name}\n", at.ip()));
        format!("{name}:{}", at.port())
    }

    /// Starts it with this environment.
    pub(crate) fn run(self, env: &[(&str, &str)]) -> Running {
        let binary = env!("CARGO_BIN_EXE_palang");
        let Some(network) = &self.network else {
            let named = self.home.path().join("ratelimit");
            symlink(binary, &named).expect("a link");
            let ports: Vec<(&str, &str)> = [("PROMETHEUS_ADDR", ":0")].to_vec();
            let env: Vec<_> = env.iter().copied().chain(ports).collect();
            return Running {
                process: Process::start_as(&named.display().to_string(), &[], &env),
                network: None,
                _home: self.home,
            };
        };
        let mut command: Vec<String> =
            ["netns", "exec", &network.name, "unshare", "-m", "sh", "-c"]
                .map(str::to_owned)
                .to_vec();
        command.extend([
            ENTER.to_owned(),
            "enter".to_owned(),
            self.home.path().display().to_string(),
            binary.to_owned(),
            self.hosts.clone(),
        ]);
        for (outside, inside) in &self.mounts {
            command.extend([outside.display().to_string(), inside.clone()]);
        }
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        Running {
            process: Process::start_bare("ip", &command, env),
            network: self.network,
            _home: self.home,
        }
    }
}

/// One that runs. Gone when dropped.
pub(crate) struct Running {
    pub(crate) process: Process,
    network: Option<Network>,
    _home: TempDir,
}

impl Running {
    /// Where a neighbour reaches a port; the port is held against `expected` where the container has a network.
    pub(crate) async fn at(&self, port: &str, expected: u16) -> SocketAddr {
        let listens = self.process.address(port).await;
        match &self.network {
            Some(network) => {
                assert_eq!(listens.port(), expected, "{port}");
                (network.inside(), expected).into()
            }
            None => (Ipv4Addr::LOCALHOST, listens.port()).into(),
        }
    }

    /// The body of a page that is asked for from inside, at a loopback address.
    pub(crate) async fn page(&self, port: &str, ip: &str, path: &str) -> String {
        let listens = self.process.address(port).await.port();
        let talk = format!(
            "exec 3<>/dev/tcp/{ip}/{listens} && printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"
        );
        let mut command = match &self.network {
            Some(network) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &network.name, "bash", "-c", &talk]);
                command
            }
            None => {
                let mut command = Command::new("bash");
                command.args(["-c", &talk]);
                command
            }
        };
        let output = tokio::task::spawn_blocking(move || command.output())
            .await
            .expect("no panic")
            .expect("bash is there");
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        match answer.split_once("\r\n\r\n") {
            Some((_, body)) => body.to_owned(),
            None => String::new(),
        }
    }

    /// Holds the process against what a pod's security context asks for, and its environment against `env`.
    pub(crate) fn is_confined(&self, env: &[(&str, &str)]) {
        if self.network.is_none() {
            return;
        }
        let proc = PathBuf::from(format!("/proc/{}", self.process.id()));
        let status = fs::read_to_string(proc.join("status")).expect("it runs");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name} in {status}")).trim()
        };
        assert_eq!(field("Uid:"), "65534\t65534\t65534\t65534");
        assert_eq!(field("Gid:"), "65534\t65534\t65534\t65534");
        assert_eq!(field("CapEff:").trim_matches('0'), "");
        assert_eq!(field("CapBnd:").trim_matches('0'), "");
        assert_eq!(field("NoNewPrivs:"), "1");
        // Not even root writes there.
        for path in ["root/x", "root/etc/x", "root/usr/x", "root/bin/ratelimit"] {
            let error = fs::write(proc.join(path), "").expect_err("it cannot be written to");
            let read_only = error.kind() == std::io::ErrorKind::ReadOnlyFilesystem;
            // A program that runs cannot be written to anyway.
            let running = error.kind() == std::io::ErrorKind::ExecutableFileBusy;
            assert!(read_only || running, "{path}: {error}");
        }
        let environment = fs::read(proc.join("environ")).expect("it runs");
        let mut found: Vec<String> = environment
            .split(|byte| *byte == 0)
            .filter(|entry| !entry.is_empty())
            .map(|entry| String::from_utf8_lossy(entry).into_owned())
            .collect();
        let mut expected: Vec<String> = env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
}

/// A network of two addresses: ours, and the container's.
struct Network {
    name: String,
    /// Which of the networks of this kind.
    number: u32,
}

impl Network {
    fn new() -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        // Other processes have another id, and each may have some.
        let number = (std::process::id() * 16 + made % 16) % (1 << 21);
        let network = Self {
            name: format!("palang{number}"),
            number,
        };
        let (name, ours, theirs) = (
            network.name.as_str(),
            format!("pa{number}"),
            format!("pb{number}"),
        );
        let (outside, inside) = (
            format!("{}/30", network.outside()),
            format!("{}/30", network.inside()),
        );
        for arguments in [
            &["netns", "add", name][..],
            &[
                "link", "add", &ours, "type", "veth", "peer", "name", &theirs, "netns", name,
            ],
            &["addr", "add", &outside, "dev", &ours],
            &["link", "set", &ours, "up"],
            &["-n", name, "addr", "add", &inside, "dev", &theirs],
            &["-n", name, "link", "set", &theirs, "up"],
            &["-n", name, "link", "set", "lo", "up"],
        ] {
            if !ip(arguments) {
                return None;
            }
        }
        let unshare = [
            "netns",
            "exec",
            name,
            "unshare",
            "-m",
            "setpriv",
            "--version",
        ];
        ip(&unshare).then_some(network)
    }

    fn outside(&self) -> Ipv4Addr {
        self.address(1)
    }

    fn inside(&self) -> Ipv4Addr {
        self.address(2)
    }

    /// Of 10.128.0.0/9, four for each network.
    fn address(&self, which: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits((10 << 24) + (128 << 16) + self.number * 4 + which)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The two ends of the wire go with it. One that was never made cannot go.
        ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip")
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
