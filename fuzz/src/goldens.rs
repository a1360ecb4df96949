//! The conformance suite's bases, made once: what inputs begin from. Knows their names and order.

use std::sync::LazyLock;

use waystation_conformance::catalogue::{base_files, bases};
use waystation_conformance::files::Files;
use waystation_conformance::recipe::Recipe;
use waystation_format::Manifest;

/// Bases by number. An input names one by its place here, so new ones are added at the end.
pub const NAMES: &[&str] = &[
    "small", "bare", "two", "blocks", "dtypes", "nibbles", "shapes", "pieces", "names", "scopes",
    "roles", "bits", "flat", "shards", "edges", "grid", "run", "run-two",
];

static FILES: LazyLock<Vec<Files>> =
    LazyLock::new(|| NAMES.iter().map(|name| base_files(name)).collect());

/// The files of a base; of a number beyond the last none.
#[must_use]
pub fn files(number: usize) -> Option<&'static Files> {
    FILES.get(number)
}

/// The recipe of a base that is made of one; numbers go round.
///
/// # Panics
/// If a base is gone from the suite.
#[must_use]
pub fn recipe(number: usize) -> Recipe {
    let alone = NAMES.len() - 2;
    bases::named(NAMES[number % alone]).expect("a base of the suite")
}

/// The manifest of the first base.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn manifest() -> Manifest {
    Manifest::parse(&FILES[0]["manifest.json"]).expect("a golden")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_base_of_the_suite_is_one_of_these() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/bases");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        there.sort();
        let mut ours: Vec<&str> = NAMES.to_vec();
        ours.sort_unstable();
        assert_eq!(there, ours);
    }
}
