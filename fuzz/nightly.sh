#!/usr/bin/env bash
# What a nightly job runs: every target with AddressSanitizer for so many minutes (20 if not said), then each corpus shrunk.
# Findings are left in fuzz/artifacts, and the script then fails. Needs a nightly toolchain and cargo-fuzz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

minutes=${1:-20}
command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked
cargo xtask fuzz seeds
cargo xtask fuzz nightly --seconds $((minutes * 60))
