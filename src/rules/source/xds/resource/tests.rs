//! Messages mean what files mean.

use prost::Message as _;
use prost_types::{Any, Struct, Value as Json, value::Kind};

use super::{TYPE_URL, World};
use crate::{
    proto::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace,
    },
    rules::{CompileError, Compiled, Domains, compile},
    unit::Unit,
};

fn any(config: &RateLimitConfig) -> Any {
    Any {
        type_url: TYPE_URL.to_owned(),
        value: config.encode_to_vec(),
    }
}

fn compiled(configs: &[RateLimitConfig]) -> Result<Compiled, CompileError> {
    World::read(configs.iter().map(any).collect()).compile(compile::Options::default())
}

fn refused(configs: &[RateLimitConfig]) -> String {
    compiled(configs).expect_err("refused").to_string()
}

fn config(name: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig {
        name: name.to_owned(),
        domain: name.to_owned(),
        descriptors,
    }
}

fn limited(key: &str, unit: i32, requests_per_unit: u32) -> RateLimitDescriptor {
    RateLimitDescriptor {
        key: key.to_owned(),
        rate_limit: Some(RateLimitPolicy {
            unit,
            requests_per_unit,
            ..RateLimitPolicy::default()
        }),
        ..RateLimitDescriptor::default()
    }
}

#[test]
fn a_policy_says_what_it_says_in_a_file() {
    for (number, unit) in [
        (1, Unit::Second),
        (2, Unit::Minute),
        (3, Unit::Hour),
        (4, Unit::Day),
        (5, Unit::Month),
        (6, Unit::Year),
        (7, Unit::Week),
    ] {
        let compiled = compiled(&[config("d", vec![limited("k", number, 0)])]).expect("loads");
        assert!(compiled.warnings.is_empty(), "{:?}", compiled.warnings);
        let limit = compiled.rules.rules()[0].limit.clone().expect("a limit");
        assert_eq!(limit.unit, Some(unit));
        assert_eq!(limit.requests_per_unit, 0);
    }
}

#[test]
fn all_fields_arrive() {
    let number = |number| Json {
        kind: Some(Kind::NumberValue(number)),
    };
    let mut descriptor = limited("k", 2, 5);
    descriptor.value = "null".to_owned();
    descriptor.shadow_mode = true;
    descriptor.quota_mode = true;
    descriptor.detailed_metric = true;
    descriptor.metadata = Some(Struct {
        fields: [
            ("whole".to_owned(), number(5.0)),
            ("part".to_owned(), number(0.5)),
            (
                "text".to_owned(),
                Json {
                    kind: Some(Kind::StringValue("5".to_owned())),
                },
            ),
        ]
        .into(),
    });
    let policy = descriptor.rate_limit.as_mut().expect("a limit");
    policy.name = "ours".to_owned();
    policy.replaces = vec![RateLimitReplace {
        name: "other".to_owned(),
    }];
    let mut unlimited = limited("free", 0, 0);
    unlimited.rate_limit.as_mut().expect("a limit").unlimited = true;
    unlimited.rate_limit.as_mut().expect("a limit").name = "other".to_owned();

    let compiled = compiled(&[config("d", vec![descriptor, unlimited])]).expect("loads");
    assert!(compiled.warnings.is_empty(), "{:?}", compiled.warnings);
    let [rule, free] = compiled.rules.rules() else {
        panic!("two rules")
    };
    assert_eq!(&*rule.path, "d.k_null");
    assert!(rule.shadow && rule.quota);
    assert_eq!(&*rule.name, "ours");
    assert_eq!(rule.replaces.len(), 1);
    assert_eq!(
        serde_json::to_string(&rule.metadata).expect("JSON"),
        r#"{"part":0.5,"text":"5","whole":5}"#
    );
    assert_eq!(free.limit, None);
}

#[test]
fn every_mistake_is_told_with_its_resource_and_path() {
    let mut parent = RateLimitDescriptor {
        key: "route".to_owned(),
        value: "r1".to_owned(),
        ..RateLimitDescriptor::default()
    };
    parent.descriptors = vec![limited("k", 2, 1), limited("k", 2, 1), limited("", 2, 1)];
    let error = refused(&[
        config("ns/gw/http", vec![parent]),
        config("two", vec![limited("a", 0, 1), limited("b", 9, 1)]),
        config("", Vec::new()),
    ]);
    for part in [
        "ns/gw/http: duplicate descriptor composite key 'ns/gw/http.route_r1.k'",
        "ns/gw/http: descriptor has empty key: write `key: ...` (rule ns/gw/http.route_r1)",
        "two: invalid rate limit unit 'UNKNOWN'",
        "(rule two.a)",
        "two: invalid rate limit unit '9'",
        "(rule two.b)",
        "(resource without name): config file cannot have empty domain",
    ] {
        assert!(error.contains(part), "{part}\nin\n{error}");
    }
}

#[test]
fn a_domain_of_two_resources_is_refused_or_merged() {
    let mut other = config("b", vec![limited("x", 1, 1)]);
    other.domain = "a".to_owned();
    let configs = [config("a", vec![limited("k", 1, 1)]), other];
    assert!(refused(&configs).starts_with("b: duplicate domain 'a' in config file"));
    let options = compile::Options {
        domains: Domains::Merged,
        ..compile::Options::default()
    };
    let merged = World::read(configs.iter().map(any).collect())
        .compile(options)
        .expect("merged");
    assert_eq!(merged.rules.rules().len(), 2);
}

#[test]
fn order_makes_no_difference() {
    let configs = ["a", "b", "c"].map(|name| config(name, vec![limited("k", 1, 1)]));
    let there = World::read(configs.iter().map(any).collect());
    let back = World::read(configs.iter().rev().map(any).collect());
    assert_eq!(there.hash(), back.hash());
    assert_ne!(
        there.hash(),
        World::read(configs.iter().take(2).map(any).collect()).hash()
    );
    let files = |world: World| {
        world
            .compile(compile::Options::default())
            .expect("loads")
            .rules
            .files()
            .to_vec()
    };
    assert_eq!(files(there), files(back));
}

#[test]
fn what_is_no_rate_limit_config_is_a_mistake() {
    let broken = Any {
        type_url: TYPE_URL.to_owned(),
        value: vec![0xff; 7],
    };
    let stranger = Any {
        type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(),
        value: Vec::new(),
    };
    let error = World::read(vec![broken, stranger, any(&config("a", Vec::new()))])
        .compile(compile::Options::default())
        .expect_err("refused")
        .to_string();
    assert!(error.contains("cannot be decoded"), "{error}");
    assert!(error.contains("envoy.config.cluster.v3.Cluster"), "{error}");
}

#[test]
fn nothing_is_a_configuration() {
    let world = World::read(Vec::new());
    let compiled = world.compile(compile::Options::default()).expect("loads");
    assert_eq!(compiled.rules.domains().count(), 0);
}

#[test]
fn text_of_a_message_does_not_break_a_line() {
    let error = refused(&[config("a\nb", vec![limited("k\nl", 0, 1)])]);
    assert_eq!(error.lines().count(), 1, "{error}");
}
