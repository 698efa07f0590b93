//! `palang bench`: load for a running service, and what it makes of it.

mod bound;
mod connection;
mod keys;
mod load;
mod report;
mod tally;
mod template;

use std::{
    io::{IsTerminal as _, Write as _},
    process::ExitCode,
    sync::{Arc, atomic::Ordering, mpsc},
    thread,
    time::{Duration, Instant},
};

use self::{
    bound::{Algorithm, Expected},
    keys::Keys,
    load::{Load, Progress},
    report::Report,
    template::{DescriptorTemplate, Template},
};
use super::client::Tls;
use crate::{
    go_values::{self, Malformed},
    proto::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus as Status,
};

/// Exit code when calls failed or the limit did not hold.
const WRONG: u8 = 1;
/// Exit code when the service cannot be reached.
const FAILED: u8 = 2;

/// Arguments of `palang bench`.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(after_help = "\
In closed loop (the default) so many callers ask again as soon as they have their answer: it shows what the service can
do, and its times are those of a service that is never more than that busy. In open loop (--rate) calls are due at their
moments, whether or not the ones before are answered, and their time counts from the moment they were due: what a stall
does to callers shows in full (no coordinated omission).

With --limit each counter is checked: it granted no more than the limit permits in the time it was asked, and refused
nothing before the limit was reached. What it granted and the bound are shown of the counters that came closest. Where
the limit's window is shorter than the run, --algorithm makes the bound as tight as the algorithm keeps it: a bucket
its burst and what was refilled meanwhile, a sliding log the limit for each window begun; windows may be touched once
more than they are long. Let no other traffic use the same counters, and no shadow rule.

Exit code: 0 good, 1 calls failed or the limit did not hold, 2 the service cannot be reached.

Examples:
  palang bench --domain api --descriptor user=%
  palang bench --domain api --descriptor user=% --inflight 8 --connections 2 --duration 30s
  palang bench --domain api --descriptor user=% --rate 5000 --json
  palang bench --domain api --descriptor route=draw,user=% --descriptor ip=% --distribution zipf --keys 1000000
  palang bench --domain api --descriptor user=% --keys 100 --limit 50 --per 1m --algorithm token_bucket
  palang bench --address limits:8081 --grpc-use-tls --grpc-server-ca-file ca.crt --domain api --descriptor user=%
  palang bench --address unix:///run/palang.sock --domain api --descriptor user=%")]
pub(super) struct Args {
    /// Address of the gRPC port; also unix:///path and https://host:port
    #[arg(long, default_value = "localhost:8081", value_name = "HOST:PORT")]
    address: String,
    /// Domain to ask for
    #[arg(long)]
    domain: String,
    /// Entries of one descriptor, outermost first; once for each descriptor of a call. % in a value stands for the key
    #[arg(long = "descriptor", required = true, value_name = "KEY=VALUE,...", value_parser = DescriptorTemplate::parse)]
    descriptors: Vec<DescriptorTemplate>,
    /// Hits to take with each descriptor [default: 1]
    #[arg(long, value_parser = go_values::integer)]
    hits: Option<u64>,
    /// How many keys there are
    #[arg(long, default_value = "10000", value_parser = go_values::count)]
    keys: usize,
    /// How often each is drawn
    #[arg(long, default_value = "uniform")]
    distribution: Distribution,
    /// Exponent of the Zipf distribution
    #[arg(long, default_value = "1.0", value_parser = positive)]
    exponent: f64,
    /// In front of a key's number [default: another one for each run, so that its counters are fresh]
    #[arg(long)]
    prefix: Option<String>,
    /// Calls in flight; in open loop the most there may be
    #[arg(long, default_value = "64", value_parser = go_values::count)]
    inflight: usize,
    /// Connections
    #[arg(long, default_value = "4", value_parser = go_values::count)]
    connections: usize,
    /// Threads of this program, no more than connections [default: one for each core]
    #[arg(long, value_parser = go_values::count)]
    threads: Option<usize>,
    /// Open loop: calls a second
    #[arg(long, value_parser = positive)]
    rate: Option<f64>,
    /// How long
    #[arg(long, default_value = "10s", value_parser = go_values::duration)]
    duration: Duration,
    /// Longest time to wait for an answer
    #[arg(long, default_value = "1s", value_parser = go_values::duration)]
    timeout: Duration,
    /// Check that each counter grants that many hits
    #[arg(long, value_parser = go_values::integer)]
    limit: Option<u64>,
    /// The limit's window [default: longer than the run]
    #[arg(long, requires = "limit", value_parser = go_values::duration)]
    per: Option<Duration>,
    /// The algorithm of the rule, for the tightest bound [default: the bound that all of them keep]
    #[arg(long, requires = "limit")]
    algorithm: Option<Algorithm>,
    /// Hits that the rule's bucket grants at once [default: the limit]
    #[arg(long, requires = "algorithm", value_parser = go_values::integer)]
    burst: Option<u64>,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: Tls,
}

/// How often each key is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Distribution {
    /// All alike
    Uniform,
    /// The n-th key 1/n as often as the first, to the power of --exponent
    Zipf,
    /// One key only
    One,
}

fn positive(text: &str) -> Result<f64, Malformed> {
    text.parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number > 0.0)
        .ok_or_else(|| Malformed::new("expected a number above 0"))
}

pub(super) fn run(args: Args) -> ExitCode {
    let expected = args.limit.map(|limit| Expected {
        limit,
        per: args.per,
        algorithm: args.algorithm,
        burst: args.burst,
    });
    let json = args.json;
    let load = load(args);
    let progress = Arc::new(Progress::default());
    let shown = std::io::stderr()
        .is_terminal()
        .then(|| Line::show(Arc::clone(&progress)));
    let ran = load.clone().run(&progress);
    drop(shown);
    let (tally, took) = match ran {
        Ok(ran) => ran,
        Err(cause) => {
            eprintln!("palang: {cause:#}");
            return ExitCode::from(FAILED);
        }
    };
    let check = expected.map(|expected| tally.check(&expected));
    let report = Report {
        load: &load,
        tally: &tally,
        took,
        check: check.as_ref(),
    };
    if json {
        println!("{}", report.json());
    } else {
        print!("{}", report.text());
    }
    if tally.failures() == 0 && check.as_ref().is_none_or(|check| check.holds()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(WRONG)
    }
}

fn load(args: Args) -> Load {
    let fresh = || format!("{:x}-", fastrand::u32(..));
    Load {
        address: args.address,
        tls: args.tls,
        template: Template {
            domain: args.domain,
            descriptors: args.descriptors,
            hits: args.hits,
            prefix: args.prefix.unwrap_or_else(fresh),
            keys: Keys::new(args.keys, args.distribution, args.exponent),
        },
        threads: args
            .threads
            .or_else(|| thread::available_parallelism().map(Into::into).ok())
            .unwrap_or(1),
        connections: args.connections,
        inflight: args.inflight,
        rate: args.rate,
        duration: args.duration,
        timeout: args.timeout,
        check: args.limit.is_some(),
    }
}

/// The line that shows how a run goes on; taken away when dropped.
struct Line {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Line {
    fn show(progress: Arc<Progress>) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let since = Instant::now();
            let mut before = 0;
            while stopped.recv_timeout(Duration::from_secs(1))
                == Err(mpsc::RecvTimeoutError::Timeout)
            {
                let answers = progress.answers.load(Ordering::Relaxed);
                let failures = progress.failures.load(Ordering::Relaxed);
                eprint!(
                    "\r{:>4} s  {:>8} calls a second  {answers} answered, {failures} failed ",
                    since.elapsed().as_secs(),
                    answers - before,
                );
                let _ = std::io::stderr().flush();
                before = answers;
            }
            eprint!("\r\x1b[K");
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It only prints; a panic in it has been printed too.
            let _ = thread.join();
        }
    }
}
