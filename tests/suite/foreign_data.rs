//! Keys that hold something else.

use palang::{
    counter::{Atomicity, Counter},
    store::{Store as _, StoreError},
};

use crate::support::{
    quotas::five,
    stores::{Bench, counter},
};

#[tokio::test]
async fn foreign_data_fails_its_own_counter_and_stays_as_it_is() {
    let bench = Bench::redis();
    let server = bench.server.as_ref().expect("a Redis bench");
    let mut connection = server.connection();
    let plant = |connection: &mut redis::Connection, key: &[u8], value: Option<&str>| {
        let mut command = redis::cmd(if value.is_some() { "SET" } else { "LPUSH" });
        command.arg(key).arg(value.unwrap_or("hello"));
        command.query::<()>(connection).expect("planted");
        redis::cmd("PEXPIRE")
            .arg(key)
            .arg(100_000)
            .query::<()>(connection)
            .expect("planted");
    };
    for (place, value) in [
        Some("hello"),
        None,
        Some(""),
        Some("9223372036854775807"),
        Some("-5"),
        Some("1e3"),
        Some("12345678901234567"),
        Some("t234567890123456789012345"),
        Some("f2345678901234567"),
    ]
    .into_iter()
    .enumerate()
    {
        for quota in five() {
            let bad = counter(&format!("bad{place}"), quota, 1);
            let good = |hits| counter(&format!("good{place}"), quota, hits);
            plant(&mut connection, bad.key.as_bytes(), value);
            let dump = |connection: &mut redis::Connection| -> Vec<u8> {
                let mut command = redis::cmd("DUMP");
                command
                    .arg(bad.key.as_bytes())
                    .query(connection)
                    .expect("DUMP")
            };
            let before = dump(&mut connection);
            for hits in [1, 0, -1] {
                let ask = [
                    good(1),
                    Counter {
                        hits,
                        ..bad.clone()
                    },
                    good(0),
                ];
                let outcomes = bench.store.take(&ask, Atomicity::PerCounter).await;
                assert_eq!(
                    outcomes[1],
                    Err(StoreError::ForeignState),
                    "{value:?} {quota:?}"
                );
                assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
                let alone = bench.store.take(&ask[1..2], Atomicity::PerCounter).await;
                assert_eq!(alone, [Err(StoreError::ForeignState)]);
                let used = bench.one(good(0)).await.used;
                let outcomes = bench.store.take(&ask, Atomicity::AllOrNothing).await;
                assert_eq!(outcomes, vec![Err(StoreError::ForeignState); 3]);
                assert_eq!(bench.one(good(0)).await.used, used);
                bench.one(good(-10)).await;
            }
            assert_eq!(dump(&mut connection), before);
        }
    }
    server.no_key_without_expiry();
}
