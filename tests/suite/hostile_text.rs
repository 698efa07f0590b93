//! Text of requests where operators read it: escaped, cut, and never more than a line.

use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::{
    debug_port::request,
    support::{eventually, http, process::Process, rules::file, service::channel},
};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 0}
";

/// Longest line about one key.
const LINE: usize = 1_000;

#[tokio::test]
async fn text_of_requests_is_escaped_and_cut_wherever_it_is_shown() {
    let rules = file(RULES);
    let path = rules.path().display().to_string();
    let process = Process::start(
        &["serve", "--rules", &path],
        &[
            ("DENY_LOG_PER_SECOND", "1000"),
            ("TOP_KEYS_IN_METRICS", "true"),
            ("LOG_LEVEL", "debug"),
            ("MAX_VALUE_LENGTH", "2000000"),
            ("MAX_MESSAGE_SIZE", "4000000"),
        ],
    );
    let client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
    let mut client = client.max_encoding_message_size(4_000_000);
    let large = "L".repeat(1 << 20);
    let large_and_odd = "\u{202e}\u{5d0}".repeat(1 << 18);
    let values = [
        "\u{1b}[2J\u{7}bell",
        "two\nlines\r\0",
        "\u{202e}drawkcab\u{2066}\u{200b}",
        "\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
        "say \"hi\" \\ {}",
        &large,
        &large_and_odd,
    ];
    // A domain and a key are text of requests as well.
    for domain in ["shop", "odd\u{1b}]0;x\u{7}\n\u{202e}"] {
        for value in values {
            let asked = request(
                domain,
                &[
                    &[("user", value)],
                    &[(value.get(..500).unwrap_or(value), "v")],
                ],
            );
            client.should_rate_limit(asked).await.expect("decided");
        }
    }
    let debug = process.address("debug").await;
    let metrics = process.address("metrics").await;
    let refusals = eventually("the log", async || {
        let mut records = process.records();
        records.retain(|record| record["@message"] == "refused");
        (records.len() == values.len()).then_some(records)
    })
    .await;
    let mut pages = vec![process.log().join("\n")];
    for record in &refusals {
        // As whoever reads the JSON sees it.
        pages.push(record["key"].as_str().expect("text").to_owned());
    }
    for path in [
        "/top?most=100",
        "/top?most=100&format=json",
        "/stats",
        "/rlconfig",
    ] {
        let page = http::get(debug, path, &[]).await.expect("an answer").body;
        pages.push(page);
    }
    let shown = http::get(metrics, "/metrics", &[])
        .await
        .expect("an answer");
    pages.push(
        shown
            .body
            .lines()
            .filter(|line| line.contains("key=\""))
            .collect::<Vec<_>>()
            .join("\n"),
    );
    for value in values {
        // An address has its own bounds.
        let value: String = value.chars().take(1_000).collect();
        let escaped: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for format in ["text", "json"] {
            let query = format!(
                "domain=shop{escaped}&descriptor=user={escaped},{escaped}=v&format={format}"
            );
            let page = http::get(debug, &format!("/explain?{query}"), &[]).await;
            pages.push(page.expect("an answer").body);
        }
    }
    for page in &pages {
        for line in page.split('\n') {
            // Of JSON the whole page is one line; `/top` has each key twice in it.
            let most = if line.starts_with(['{', '[']) {
                2 * values.len() * LINE
            } else {
                LINE
            };
            let start: String = line.chars().take(300).collect();
            assert!(line.len() <= most, "{} bytes: {start}", line.len());
            for character in line.chars() {
                let hidden =
                    character.is_control() || "\u{202e}\u{2066}\u{200b}".contains(character);
                assert!(!hidden, "{character:?} in {start}");
            }
        }
    }
    let all = pages.join("\n");
    for seen in [
        "user=\\u{1b}[2J\\u{7}bell",
        "user=two\\nlines\\r\\u{0}",
        "user=\\u{202e}drawkcab\\u{2066}\\u{200b}",
        "user=\u{5e9}\u{5dc}\u{5d5}\u{5dd}",
        "user=LLLLL",
    ] {
        assert!(all.contains(seen), "{seen}");
    }
}
