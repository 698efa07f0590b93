//! The keys with most hits as metrics: a few ranks for each domain, so the number of series is fixed.

use std::{fmt, sync::Arc};

use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::MetricType};

use super::top::{Listed, Offender, Top};
use crate::time::Clock;

/// Keys of each domain that are shown.
const RANKS: usize = 5;

#[derive(Debug)]
pub(super) struct TopView {
    pub(super) top: Arc<Top>,
    pub(super) clock: Clock,
    /// Text of requests in labels, because the operator asked for it.
    pub(super) with_keys: bool,
}

impl Collector for TopView {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let listed = self.top.list(RANKS, self.clock.now());
        for (name, help, of) in [
            (
                "palang_top_refused_hits",
                "Hits refused in the last minutes, of the keys with most",
                (|listed| &listed.refused) as fn(&Listed) -> &Vec<Offender>,
            ),
            (
                "palang_top_asked_hits",
                "Hits asked for in the last minutes, of the keys with most",
                |listed| &listed.asked,
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for domain in &listed {
                for (offender, rank) in of(domain).iter().zip(1_u64..) {
                    let rank = rank.to_string();
                    let mut labels = vec![
                        ("domain", &*domain.domain),
                        ("rank", &*rank),
                        ("rule", &*offender.rule),
                    ];
                    if self.with_keys {
                        labels.push(("key", &*offender.key));
                    }
                    family
                        .encode_family(&labels)?
                        .encode_gauge(&offender.hits)?;
                }
            }
        }
        Ok(())
    }
}
