//! Who may do more than look: whoever sends the token of the settings.

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, StatusCode, header::AUTHORIZATION};
use sha2::{Digest as _, Sha256};

use crate::secret::Secret;

/// Why the caller may not, if it may not.
pub(super) fn refused(token: &Secret, headers: &HeaderMap) -> Option<Response> {
    if token.is_empty() {
        let how = "this is open to who has the token, and there is none: ADMIN_TOKEN is not set\n";
        return Some((StatusCode::FORBIDDEN, how).into_response());
    }
    let given = headers
        .get(AUTHORIZATION)
        .and_then(|given| given.as_bytes().strip_prefix(b"Bearer "))
        .unwrap_or_default();
    // Digests, so that the time of the comparison tells nothing of the token.
    if Sha256::digest(given) == Sha256::digest(token.expose().as_bytes()) {
        return None;
    }
    tracing::warn!("a call to what the token guards came without the token");
    let how = "expected the value of ADMIN_TOKEN as a bearer token\n";
    Some((StatusCode::UNAUTHORIZED, how).into_response())
}
