//! Second names of tensors, as they are declared.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    dead_code,
    unreachable_pub,
    reason = "a test that cannot go on should say where"
)]

mod support;

use std::sync::Arc;

use support::{Model, declare, memory_run, open, plan, write};
use waystation_format::{Alias, Code, Dtype, Identity, Role, rule};
use waystation_reader::{NoProgress, VerifyOptions, verify};
use waystation_writer::{CommitOptions, commit, make_attempt};

fn alias(component: &str, name: &str, of: Identity) -> Alias {
    let (component, name) = (component.to_owned(), name.to_owned());
    Alias { component, name, role: of.role, of, native: Vec::new() }
}

#[test]
fn an_alias_of_itself_is_refused_where_it_is_declared() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let (_, attempt) = make_attempt(&run, &plan, 5, 0).unwrap();
    let models = [Model::param("w", Dtype::F32, &[4])];
    let (mut session, _) = declare(&attempt, &plan, 5, 0, &models).unwrap();
    // Whether or not there is a tensor of that name.
    for name in ["w", "nothing"] {
        let error = session.alias(alias("main", name, Identity::param(name))).unwrap_err();
        assert_eq!((error.code(), error.rule_id()), (Code::BadAlias, Some(rule::ALIAS_TARGET)));
        assert_eq!(error.location().tensor, Some(Identity::param(name).key()));
    }
    let slot = Identity { role: Role::Optimizer, slot: "m".to_owned(), ..Identity::param("w") };
    let error = session.alias(alias("main", "v", slot)).unwrap_err();
    assert_eq!((error.code(), error.rule_id()), (Code::BadAlias, Some(rule::ALIAS_ROLE)));
}

#[test]
fn an_alias_may_be_of_another_component() {
    let (_, run) = memory_run();
    let plan = plan(&run, 1);
    let (name, attempt) = make_attempt(&run, &plan, 5, 5).unwrap();
    let models = [Model::param("w", Dtype::F32, &[4])];
    let (mut session, chunks) = declare(&attempt, &plan, 5, 0, &models).unwrap();
    // It has the target's name even.
    session.alias(alias("critic", "w", Identity::param("w"))).unwrap();
    let writing = session.lay_out().unwrap();
    write(&writing, &chunks).unwrap();
    writing.finish().unwrap();
    commit(&attempt, &CommitOptions::in_run(Arc::clone(&run), name), &NoProgress).unwrap();
    let report = verify(&attempt, &VerifyOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    let named = Identity { component: "critic".to_owned(), ..Identity::param("w") };
    assert_eq!(open(&attempt).tensor(&named).unwrap().read().unwrap(), models[0].bytes);
}
