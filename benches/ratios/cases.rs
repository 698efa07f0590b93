//! What is measured, on what.

use std::{
    env,
    net::{SocketAddr, ToSocketAddrs as _},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::Context as _;
use palang::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{RateLimitRequest, rate_limit_service_client::RateLimitServiceClient},
};
use serde_json::Value;
use tempfile::TempDir;
use tonic::transport::Endpoint;

use crate::{
    Scale,
    processes::{self, Server},
    sample::Sample,
};

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    server: Which,
    domain: &'static str,
    descriptors: &'static [&'static str],
    inflight: usize,
    keys: Keys,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Floor,
    Memory,
    /// Memory that holds many keys already.
    Full,
    /// Memory, without the keys with most hits.
    NoTop,
    /// Memory, with one call in a hundred followed and told to a collector.
    Traced,
    Redis,
    /// Redis, traced in the same way.
    RedisTraced,
    /// Another service, which runs already.
    Other(SocketAddr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// 10,000 of them, the same in each round.
    Random,
    /// As many as the store was filled with.
    Live,
    One,
    /// A hundred that are over their limit.
    Refused,
}

const fn case(
    name: &'static str,
    server: Which,
    (domain, descriptors): (&'static str, &'static [&'static str]),
    inflight: usize,
    keys: Keys,
) -> Case {
    Case {
        name,
        server,
        domain,
        descriptors,
        inflight,
        keys,
    }
}

const ONE: (&str, &[&str]) = ("one", &["key=%"]);
const FOUR: (&str, &[&str]) = ("four", &["a=%", "b=%", "c=%", "d=%"]);
const MANY: (&str, &[&str]) = ("many", &["key=%"]);
const REFUSED: (&str, &[&str]) = ("refused", &["key=%"]);
const LIVE: (&str, &[&str]) = ("live", &["key=%"]);

/// Everything, in the order of the table. Cases whose ratio is wanted stand near each other.
pub(crate) const CASES: &[Case] = &[
    case("floor, 64", Which::Floor, ONE, 64, Keys::Random),
    case("memory, 64", Which::Memory, ONE, 64, Keys::Random),
    case("memory, traced", Which::Traced, ONE, 64, Keys::Random),
    case("redis, 64", Which::Redis, ONE, 64, Keys::Random),
    case("redis, traced", Which::RedisTraced, ONE, 64, Keys::Random),
    case("floor, 8", Which::Floor, ONE, 8, Keys::Random),
    case("memory, 8", Which::Memory, ONE, 8, Keys::Random),
    case("redis, 8", Which::Redis, ONE, 8, Keys::Random),
    case(
        "memory, 4 descriptors",
        Which::Memory,
        FOUR,
        64,
        Keys::Random,
    ),
    case("redis, 4 descriptors", Which::Redis, FOUR, 64, Keys::Random),
    case(
        "memory, 10,000 rules",
        Which::Memory,
        MANY,
        64,
        Keys::Random,
    ),
    case("redis, 10,000 rules", Which::Redis, MANY, 64, Keys::Random),
    case("memory, 1,000,000 keys", Which::Full, LIVE, 64, Keys::Live),
    case("redis, hot key", Which::Redis, ONE, 64, Keys::One),
    case("memory, refused", Which::Memory, REFUSED, 64, Keys::Refused),
    case("redis, refused", Which::Redis, REFUSED, 64, Keys::Refused),
    case("memory, no /top", Which::NoTop, ONE, 64, Keys::Random),
    case(
        "memory, no /top, refused",
        Which::NoTop,
        REFUSED,
        64,
        Keys::Refused,
    ),
    case(
        "memory, fixed_window",
        Which::Memory,
        ("algorithms", &["fixed_window=%"]),
        64,
        Keys::Random,
    ),
    case(
        "memory, sliding_window",
        Which::Memory,
        ("algorithms", &["sliding_window=%"]),
        64,
        Keys::Random,
    ),
    case(
        "memory, sliding_log",
        Which::Memory,
        ("algorithms", &["sliding_log=%"]),
        64,
        Keys::Random,
    ),
    case(
        "memory, leaky_bucket",
        Which::Memory,
        ("algorithms", &["leaky_bucket=%"]),
        64,
        Keys::Random,
    ),
    case(
        "redis, fixed_window",
        Which::Redis,
        ("algorithms", &["fixed_window=%"]),
        64,
        Keys::Random,
    ),
    case(
        "redis, sliding_window",
        Which::Redis,
        ("algorithms", &["sliding_window=%"]),
        64,
        Keys::Random,
    ),
    case(
        "redis, sliding_log",
        Which::Redis,
        ("algorithms", &["sliding_log=%"]),
        64,
        Keys::Random,
    ),
    case(
        "redis, leaky_bucket",
        Which::Redis,
        ("algorithms", &["leaky_bucket=%"]),
        64,
        Keys::Random,
    ),
];

/// The cases of other services, as `BENCH_OTHER` names them: `name=HOST:PORT`, several separated by commas.
///
/// # Errors
/// A part of another form.
pub(crate) fn others() -> anyhow::Result<Vec<Case>> {
    let text = env::var("BENCH_OTHER").unwrap_or_default();
    let mut cases = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, address) = part
            .split_once('=')
            .with_context(|| format!("BENCH_OTHER: {part} is not name=HOST:PORT"))?;
        let address = address
            .to_socket_addrs()
            .with_context(|| format!("BENCH_OTHER: {address} is no address"))?
            .next()
            .with_context(|| format!("BENCH_OTHER: {address} has no address"))?;
        for (suffix, domain, inflight) in
            [("64", ONE, 64), ("8", ONE, 8), ("4 descriptors", FOUR, 64)]
        {
            // A name lives as long as the program, like those of the other cases.
            let name = String::leak(format!("{name}, {suffix}"));
            cases.push(case(
                name,
                Which::Other(address),
                domain,
                inflight,
                Keys::Random,
            ));
        }
    }
    Ok(cases)
}

impl Case {
    /// Is it another service's, with one descriptor and many calls in flight?
    pub(crate) fn is_other(&self) -> bool {
        matches!(self.server, Which::Other(_)) && self.inflight == 64 && self.domain == ONE.0
    }

    /// Is it one of those that `only` names? The floor is always measured.
    pub(crate) fn is_wanted(&self, only: &str) -> bool {
        self.server == Which::Floor || only.split(';').any(|part| self.name.contains(part))
    }

    pub(crate) fn needs_live_keys(&self) -> bool {
        self.keys == Keys::Live
    }

    /// The case of the floor that this one is compared with.
    pub(crate) const fn floor(&self) -> &'static str {
        if self.inflight == 8 {
            "floor, 8"
        } else {
            "floor, 64"
        }
    }

    fn load(&self, address: &str, scale: Scale) -> Vec<String> {
        let (keys, distribution) = match self.keys {
            Keys::Random => (10_000, "uniform"),
            Keys::Live => (scale.live_keys, "uniform"),
            Keys::One => (1, "one"),
            Keys::Refused => (100, "uniform"),
        };
        let mut words: Vec<String> = ["bench", "--json", "--prefix", "k", "--timeout", "10s"]
            .map(str::to_owned)
            .to_vec();
        for (flag, value) in [
            ("--address", address.to_owned()),
            ("--domain", self.domain.to_owned()),
            ("--inflight", self.inflight.to_string()),
            ("--keys", keys.to_string()),
            ("--distribution", distribution.to_owned()),
            ("--duration", format!("{}ms", scale.each.as_millis())),
        ] {
            words.extend([flag.to_owned(), value]);
        }
        for descriptor in self.descriptors {
            words.extend(["--descriptor".to_owned(), (*descriptor).to_owned()]);
        }
        words
    }
}

/// All servers; those that are not asked do nothing.
pub(crate) struct Servers {
    floor: Server,
    memory: Server,
    full: Server,
    no_top: Server,
    traced: Server,
    redis: Server,
    redis_traced: Server,
    store: Server,
    _home: TempDir,
}

impl Servers {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let home = tempfile::tempdir()?;
        let rules = home.path().join("rules");
        write_rules(&rules)?;
        let store = processes::redis(home.path())?;
        let url = store.address.to_string();
        let memory = [("MEMORY_MAX_KEYS", "2000000")];
        let redis = [
            ("REDIS_URL", url.as_str()),
            ("LOCAL_CACHE_SIZE_IN_BYTES", "10000000"),
        ];
        let collector = format!("http://{}", processes::collector()?);
        let traced = [
            ("TRACING_ENABLED", "true"),
            ("TRACING_SAMPLING_RATE", "0.01"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", collector.as_str()),
        ];
        Ok(Self {
            floor: processes::floor()?,
            memory: processes::palang(&rules, &memory)?,
            full: processes::palang(&rules, &memory)?,
            no_top: processes::palang(&rules, &[memory[0], ("TOP_KEYS", "0")])?,
            traced: processes::palang(&rules, &[&memory[..], &traced].concat())?,
            redis: processes::palang(&rules, &redis)?,
            redis_traced: processes::palang(&rules, &[&redis[..], &traced].concat())?,
            store,
            _home: home,
        })
    }

    /// `None`: not one of ours.
    fn of(&self, which: Which) -> Option<&Server> {
        match which {
            Which::Floor => Some(&self.floor),
            Which::Memory => Some(&self.memory),
            Which::Full => Some(&self.full),
            Which::NoTop => Some(&self.no_top),
            Which::Traced => Some(&self.traced),
            Which::Redis => Some(&self.redis),
            Which::RedisTraced => Some(&self.redis_traced),
            Which::Other(_) => None,
        }
    }

    /// Puts `keys` counters into the memory that is to hold many, and says how many bytes each took.
    pub(crate) fn fill(&self, keys: usize) -> anyhow::Result<u64> {
        const AT_ONCE: usize = 20;
        let before = self.full.process.resident()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let channel = Endpoint::from_shared(format!("http://{}", self.full.address))?
                .connect()
                .await?;
            let mut client = RateLimitServiceClient::new(channel);
            for first in (0..keys).step_by(AT_ONCE) {
                let descriptors = (first..keys.min(first + AT_ONCE)).map(descriptor).collect();
                let request = RateLimitRequest {
                    domain: LIVE.0.to_owned(),
                    descriptors,
                    hits_addend: 1,
                };
                client.should_rate_limit(request).await?;
            }
            anyhow::Ok(())
        })?;
        let grown = self.full.process.resident()?.saturating_sub(before);
        Ok(grown / keys as u64)
    }

    /// Runs a case once.
    pub(crate) fn measure(&self, case: &Case, scale: Scale) -> anyhow::Result<Sample> {
        let server = self.of(case.server);
        // Of another service's process nothing is known: its CPU is shown as 0.
        let cpu = || server.map_or(Ok(Duration::ZERO), |server| server.process.cpu());
        let address = match case.server {
            Which::Other(address) => address,
            _ => server.context("one of ours")?.address,
        };
        let before = (cpu()?, self.store.process.cpu()?);
        let calls_before = processes::script_calls(self.store.address)?;
        let output = Command::new(env!("CARGO_BIN_EXE_palang"))
            .args(case.load(&address.to_string(), scale))
            .env_clear()
            .output()?;
        let server_cpu = cpu()?.saturating_sub(before.0);
        let store_cpu = self.store.process.cpu()?.saturating_sub(before.1);
        let store_calls = processes::script_calls(self.store.address)?.saturating_sub(calls_before);
        anyhow::ensure!(
            output.status.success(),
            "calls failed: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        let found: Value = serde_json::from_slice(&output.stdout).context("no JSON")?;
        let number = |value: &Value| value.as_f64().context("a number is missing");
        let calls = number(&found["calls"])?;
        let without_limit = number(&found["without_limit"])?;
        anyhow::ensure!(
            without_limit == 0.0 || case.server == Which::Floor,
            "no rule applies"
        );
        let refused = number(&found["over_limit"])? / calls;
        anyhow::ensure!(
            case.keys == Keys::Refused || refused < 0.01,
            "{refused} of the calls were refused"
        );
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / calls;
        let time = |name: &str| number(&found["latency_us"][name]);
        Ok(Sample {
            per_second: number(&found["calls_per_second"])?,
            cpu: each(server_cpu),
            redis: if matches!(case.server, Which::Redis | Which::RedisTraced) {
                each(store_cpu)
            } else {
                0.0
            },
            store_calls: store_calls as f64 / calls,
            p50: time("p50")?,
            p99: time("p99")?,
            p999: time("p99.9")?,
        })
    }
}

fn descriptor(number: usize) -> RateLimitDescriptor {
    RateLimitDescriptor {
        entries: vec![Entry {
            key: "key".to_owned(),
            value: format!("k{number}"),
        }],
        ..RateLimitDescriptor::default()
    }
}

/// One file for each domain.
fn write_rules(directory: &Path) -> anyhow::Result<()> {
    const PLENTY: &str =
        "rate_limit: {unit: second, requests_per_unit: 1000000, algorithm: token_bucket}";
    let rule = |key: &str, limit: &str| format!("- key: {key}\n  {limit}\n");
    let four: String = ["a", "b", "c", "d"].map(|key| rule(key, PLENTY)).concat();
    let many: String = (0..10_000)
        .map(|number| rule(&format!("key\n  value: k{number}"), PLENTY))
        .collect();
    let algorithms = [
        rule("fixed_window", "rate_limit: {unit: second, requests_per_unit: 1000000}"),
        rule("sliding_window", "rate_limit: {unit: second, requests_per_unit: 1000000, algorithm: sliding_window}"),
        rule("sliding_log", "rate_limit: {unit: second, requests_per_unit: 1000, algorithm: sliding_log}"),
        rule("leaky_bucket", "rate_limit: {unit: second, requests_per_unit: 1000000, algorithm: leaky_bucket, max_delay: 1s}"),
    ]
    .concat();
    // An hour: what is taken stays for the length of the benchmark.
    let refused = rule(
        "key",
        "rate_limit: {unit: year, requests_per_unit: 1, algorithm: token_bucket}",
    );
    let live = rule(
        "key",
        "rate_limit: {unit: day, requests_per_unit: 1000, algorithm: token_bucket, burst: 100}",
    );
    std::fs::create_dir(directory)?;
    for (domain, rules) in [
        ("one", rule("key", PLENTY)),
        ("four", four),
        ("many", many),
        ("algorithms", algorithms),
        ("refused", refused),
        ("live", live),
    ] {
        let text = format!("domain: {domain}\ndescriptors:\n{rules}");
        std::fs::write(directory.join(format!("{domain}.yaml")), text)?;
    }
    Ok(())
}
