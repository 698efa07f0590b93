//! What is said of configurations and streams: to the control plane, and in the log.

use tonic::{Code, Status as GrpcStatus};

use super::connect::chain;
use crate::rules::{CompileError, Mistake};

/// Most mistakes told to the control plane, and most bytes.
const MAX_TOLD: usize = 20;
const MAX_TOLD_BYTES: usize = 16 << 10;

/// The mistakes as the control plane gets them: as many as fit.
pub(super) fn told(failed: &CompileError) -> String {
    let mut text = String::new();
    for (number, mistake) in failed.mistakes.iter().enumerate() {
        let line = mistake.to_string();
        if number == MAX_TOLD || (number > 0 && text.len() + line.len() > MAX_TOLD_BYTES) {
            let more = Mistake::count(&failed.mistakes[number..]);
            text.push_str(&format!("; and {more} more"));
            break;
        }
        if number > 0 {
            text.push_str("; ");
        }
        text.push_str(&line);
    }
    if text.len() > MAX_TOLD_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TOLD_BYTES));
    }
    text
}

/// Why a stream ended.
pub(super) fn describe(status: &GrpcStatus, max_message_bytes: usize) -> String {
    if status.code() == Code::OutOfRange {
        return format!(
            "a push is above {max_message_bytes} bytes, raise XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES: {}",
            status.message()
        );
    }
    // The message is the server's: it must not break the line.
    let message: String = status.message().escape_debug().take(500).collect();
    let mut text = format!("{:?}", status.code());
    for part in [
        message,
        std::error::Error::source(status).map_or_else(String::new, chain),
    ] {
        if !part.is_empty() {
            text.push_str(": ");
            text.push_str(&part);
        }
    }
    text
}
