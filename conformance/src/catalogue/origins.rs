//! Where faults of the kind have been met: reports on loaders of other formats. Knows addresses by case, and nothing else.

use crate::case::Case;

/// Case, and the address of a public report.
const ORIGINS: &[(&str, &str)] = &[
    // Sizes that wrap, and memory taken for what a file states.
    ("core/size-wraps-to-little", "https://www.cve.org/CVERecord?id=CVE-2025-53630"),
    ("core/table-count-wraps", "https://www.cve.org/CVERecord?id=CVE-2026-27940"),
    ("core/chunk-extent-wraps-32", "https://www.cve.org/CVERecord?id=CVE-2026-53923"),
    ("core/shard-stated-huge", "https://www.cve.org/CVERecord?id=CVE-2025-0315"),
    ("core/json-depth-bomb", "https://rustsec.org/advisories/RUSTSEC-2024-0437.html"),
    ("core/block-bytes-zero", "https://github.com/ggml-org/llama.cpp/pull/26318"),
    // Two parsers that see two things in one file.
    ("core/json-duplicate-member", "https://github.com/ggml-org/llama.cpp/issues/1603"),
    ("core/json-duplicate-in-page", "https://github.com/safetensors/safetensors/issues/401"),
    ("core/json-whitespace-before", "https://github.com/safetensors/safetensors/issues/686"),
    ("core/shard-longer", "https://rustsec.org/advisories/RUSTSEC-2025-0110.html"),
    ("core/feature-required-unknown", "https://rustsec.org/advisories/RUSTSEC-2026-0066.html"),
    ("core/cover-overlap-whole-twice", "https://github.com/ohdearquant/lattice/pull/988"),
    // Paths and links that lead out of the directory.
    ("core/path-parent-within", "https://www.cve.org/CVERecord?id=CVE-2024-27318"),
    ("core/shard-symlink", "https://www.cve.org/CVERecord?id=CVE-2026-27489"),
    ("core/shard-names-path", "https://github.com/huggingface/transformers/issues/46097"),
    ("core/shard-names-uri", "https://www.cve.org/CVERecord?id=CVE-2026-1669"),
    ("core/type-chunk-offset-negative", "https://github.com/advisories/GHSA-538c-55jv-c5g9"),
    // State of ranks that are no more.
    ("resume/share-axis-gone", "https://github.com/pytorch/torchtitan/pull/816"),
];

/// Gives cases their origins; one that is no case's is a slip of the suite.
pub(super) fn name(cases: &mut [Case]) {
    for (id, address) in ORIGINS {
        let case = cases.iter_mut().find(|case| case.expect.id == *id);
        case.unwrap_or_else(|| panic!("no case {id}")).expect.origin = Some((*address).to_owned());
    }
}
