//! Compiles `proto/` with protox, a protobuf compiler in Rust: a build needs no `protoc`.

use std::{env, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 4] = [
    "proto/envoy/service/discovery/v3/ads.proto",
    "proto/envoy/service/ratelimit/v3/rls.proto",
    "proto/grpc/health/v1/health.proto",
    "proto/ratelimit/config/ratelimit/v3/rls_conf.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // gRPC reflection serves this.
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
