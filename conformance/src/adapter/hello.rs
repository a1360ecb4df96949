//! Who this is, and what it claims.

use serde_json::{Value, json};
use waystation_format::Result;

use super::{Request, bad_argument};

pub(super) fn answer(request: &Request) -> Result<Value> {
    if request.member("protocol").as_u64() != Some(1) {
        return Err(bad_argument("expected protocol 1, which this adapter speaks"));
    }
    Ok(json!({
        "protocol": 1,
        "implementation": {
            "name": "waystation",
            "version": env!("CARGO_PKG_VERSION"),
            "language": "Rust",
            "url": "conformance/src/adapter.rs",
        },
        "roles": ["reader", "validator", "writer", "committer", "keeper"],
        "profiles": ["core", "reshard", "resume", "writer", "durability", "extended"],
    }))
}
