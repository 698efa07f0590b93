//! What can be wrong with a store, and what each kind of trouble asks for: one table for all of them.

use super::StoreError;

/// A kind of trouble: the label it is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No answer in time.
    Timeout,
    /// No connection, or it broke.
    Unavailable,
    /// All connections were in use for too long.
    NoConnection,
    /// Left alone after failures.
    Open,
    /// Too many calls wait already.
    Overloaded,
    /// A queue is full.
    Full,
    /// The key holds something else.
    Foreign,
    /// A replica, since a failover.
    ReadOnly,
    /// It reads its data set.
    Loading,
    /// A replica without its primary.
    MasterDown,
    /// The slot is elsewhere.
    Moved,
    /// The slot is on its way elsewhere.
    Ask,
    /// The slot's keys are on both sides.
    TryAgain,
    /// Slots without a server.
    ClusterDown,
    /// A script of somebody else runs.
    Busy,
    /// `maxmemory`, and nothing to evict.
    OutOfMemory,
    /// No or a wrong password.
    Auth,
    /// The user may not do that.
    NoPermission,
    /// It cannot save, and therefore takes no writes.
    Misconfigured,
    /// Fewer replicas than it wants.
    NoReplicas,
    /// It has all the clients it takes.
    MaxClients,
    /// The key holds another type.
    WrongType,
    /// It does not know the script, again and again.
    NoScript,
    /// Any other error.
    Other,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Which kind.
    pub kind: Kind,
    /// Label of `palang_store_errors_total`.
    pub name: &'static str,
    /// The connection must not be used again: the next one is made anew, with the name resolved again.
    pub reconnect: bool,
    /// Another server of the same store may be able to answer.
    pub elsewhere: bool,
    /// It says that the store as a whole is in trouble, not only this counter: the breaker counts it.
    pub whole: bool,
}

const fn row(kind: Kind, name: &'static str, marks: &[u8]) -> Trouble {
    let mut trouble = Trouble {
        kind,
        name,
        reconnect: false,
        elsewhere: false,
        whole: false,
    };
    let mut at = 0;
    while at < marks.len() {
        match marks[at] {
            b'r' => trouble.reconnect = true,
            b'e' => trouble.elsewhere = true,
            b'w' => trouble.whole = true,
            _ => {}
        }
        at += 1;
    }
    trouble
}

/// The table: r(econnect), e(lsewhere), w(hole store). What has no mark fails its own counter and nothing else.
const TABLE: [Trouble; Trouble::KINDS] = [
    row(Kind::Timeout, "timeout", b"rw"),
    row(Kind::Unavailable, "unavailable", b"rw"),
    row(Kind::NoConnection, "no_connection", b""),
    row(Kind::Open, "open", b""),
    row(Kind::Overloaded, "overloaded", b""),
    row(Kind::Full, "full", b""),
    row(Kind::Foreign, "foreign", b""),
    row(Kind::ReadOnly, "readonly", b"rew"),
    row(Kind::Loading, "loading", b"ew"),
    row(Kind::MasterDown, "masterdown", b"rew"),
    row(Kind::Moved, "moved", b"e"),
    row(Kind::Ask, "ask", b"e"),
    row(Kind::TryAgain, "tryagain", b"e"),
    row(Kind::ClusterDown, "clusterdown", b"w"),
    row(Kind::Busy, "busy", b"w"),
    row(Kind::OutOfMemory, "oom", b""),
    row(Kind::Auth, "auth", b"rw"),
    row(Kind::NoPermission, "noperm", b""),
    row(Kind::Misconfigured, "misconf", b"w"),
    row(Kind::NoReplicas, "noreplicas", b"w"),
    row(Kind::MaxClients, "maxclients", b"rw"),
    row(Kind::WrongType, "wrongtype", b""),
    row(Kind::NoScript, "noscript", b""),
    row(Kind::Other, "other", b""),
];

impl Trouble {
    /// How many kinds there are. A number of its own: a length taken from the table makes the compiler go in circles
    /// when it optimises.
    pub const KINDS: usize = 24;

    /// Every kind there is.
    pub const ALL: [Self; Self::KINDS] = TABLE;

    /// What `error` is.
    pub fn of(error: &StoreError) -> Self {
        TABLE[kind(error) as usize]
    }
}

fn kind(error: &StoreError) -> Kind {
    match error {
        StoreError::Timeout => Kind::Timeout,
        StoreError::Unavailable(_) => Kind::Unavailable,
        StoreError::NoConnection => Kind::NoConnection,
        StoreError::Open => Kind::Open,
        StoreError::Overloaded => Kind::Overloaded,
        StoreError::Full => Kind::Full,
        StoreError::ForeignState => Kind::Foreign,
        StoreError::Refused(word) => match &**word {
            "READONLY" => Kind::ReadOnly,
            "LOADING" => Kind::Loading,
            "MASTERDOWN" => Kind::MasterDown,
            "MOVED" => Kind::Moved,
            "ASK" => Kind::Ask,
            "TRYAGAIN" => Kind::TryAgain,
            "CLUSTERDOWN" => Kind::ClusterDown,
            "BUSY" => Kind::Busy,
            "OOM" => Kind::OutOfMemory,
            "NOAUTH" | "WRONGPASS" => Kind::Auth,
            "NOPERM" => Kind::NoPermission,
            "MISCONF" => Kind::Misconfigured,
            "NOREPLICAS" => Kind::NoReplicas,
            "MAXCLIENTS" => Kind::MaxClients,
            "WRONGTYPE" => Kind::WrongType,
            "NOSCRIPT" => Kind::NoScript,
            _ => Kind::Other,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_kinds_and_names_are_unique() {
        for (place, trouble) in TABLE.iter().enumerate() {
            assert_eq!(trouble.kind as usize, place, "{trouble:?}");
            let same = TABLE.iter().filter(|other| other.name == trouble.name);
            assert_eq!(same.count(), 1, "{trouble:?}");
        }
    }

    #[test]
    fn words_of_redis_are_told_apart() {
        let of = |word: &str| Trouble::of(&StoreError::Refused(word.into()));
        assert!(of("READONLY").reconnect && of("READONLY").whole);
        assert!(of("LOADING").whole && !of("LOADING").reconnect);
        assert!(of("MOVED").elsewhere && !of("MOVED").whole);
        assert!(!of("OOM").whole && !of("OOM").reconnect);
        assert_eq!(of("WRONGPASS").name, "auth");
        assert_eq!(of("something else").name, "other");
    }
}
