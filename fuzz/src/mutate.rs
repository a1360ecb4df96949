//! `mutate`: a recipe and one change. No byte of a named file can be another without a validator seeing it, and a reader either
//! refuses or gives what was saved.

use std::sync::Arc;

use arbitrary::Unstructured;
use waystation_conformance::bend::straight;
use waystation_conformance::files::Files;
use waystation_conformance::recipe::Recipe;
use waystation_store::{MemoryFs, Store};

use crate::gen_mutation::{self, Mutation, Place};
use crate::{gen_recipe, judge, reader};

/// Changes one place of a checkpoint, and reads and checks it.
///
/// # Panics
/// If the checkpoint is refused without the change; if a validator accepts one that has another byte; if a reader gives other
/// content where nothing above the change was made to fit.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let Ok(recipe) = gen_recipe::recipe(&mut u) else { return };
    let files = straight(&recipe);
    let Ok(mutation) = gen_mutation::mutation(&mut u, &recipe, &files) else { return };
    check(&recipe, &files, &mutation);
}

fn check(recipe: &Recipe, files: &Files, mutation: &Mutation) {
    let saved = reader::answers(&stored(files));
    assert!(
        saved.findings.is_empty(),
        "a recipe without a change is refused: {:?}",
        saved.findings
    );
    let expected =
        saved.read.unwrap_or_else(|e| panic!("a recipe without a change is refused: {e}"));
    let changed = mutation.apply(recipe);
    let found = reader::answers(&stored(&changed));
    found.findings.iter().for_each(judge::reading);
    if let Err(e) = &found.read {
        judge::refusal(e);
        assert!(
            !found.findings.is_empty(),
            "a validator accepts what a reader refuses: {e}, {mutation:?}"
        );
    }
    if changed == *files {
        assert!(found.findings.is_empty(), "nothing changed, and {:?}", found.findings);
        return;
    }
    // The part has its digest in its name, so a part that is made to fit stands under another; what of it goes no further than
    // the part (who produced it, which inventory it expects) is a checkpoint of its own.
    let own = matches!(mutation, Mutation::Value { place: Place::Part(_), fixed_up: true, .. });
    if !own {
        assert!(!found.findings.is_empty(), "a validator sees nothing of {mutation:?}");
    }
    let checked = match mutation {
        Mutation::Value { fixed_up, .. } => !fixed_up,
        _ => true,
    };
    if let Ok(read) = found.read
        && (checked || own)
    {
        assert_eq!(read, expected, "{mutation:?}");
    }
}

/// Files in memory.
#[must_use]
pub fn stored(files: &Files) -> Arc<dyn Store> {
    let fs = MemoryFs::new();
    for (name, bytes) in files {
        fs.set(name, bytes.clone()).expect("a flat directory in memory");
    }
    fs.store()
}

#[cfg(test)]
mod tests {
    use crate::goldens;

    use super::*;

    #[test]
    fn every_byte_of_a_golden_is_protected_and_a_change_that_is_none_is_noticed() {
        let recipe = goldens::recipe(1);
        let files = straight(&recipe);
        for (file, bytes) in &files {
            for at in (0..bytes.len()).step_by(97) {
                check(&recipe, &files, &Mutation::Flip { file: file.clone(), at, mask: 1 });
            }
        }
        // Files that are said to be the recipe's, and are not.
        let other = straight(&goldens::recipe(0));
        let none = Mutation::Flip { file: String::new(), at: 0, mask: 1 };
        assert!(std::panic::catch_unwind(|| check(&recipe, &other, &none)).is_err());
    }
}
