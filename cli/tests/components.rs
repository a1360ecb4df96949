//! Exports of one component and of few roles: no element is lost, whatever shares data with what.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "a test says where it fails by panicking"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;

use serde_json::json;
use support::Program;
use waystation_format::entry::Alias;
use waystation_format::{Dtype, Identity, Region, Role, Topology};
use waystation_reader::NoProgress;
use waystation_store::make_path;
use waystation_writer::{CommitOptions, Session, SessionPlan, TensorDecl, commit};

/// `main`: the param `w`, the buffer `b`, and `tied`, a param that is the critic's `w`. `critic`: the param `w`.
fn saved(program: &Program) {
    let attempt = make_path(&program.path("ckpt")).unwrap();
    let plan = SessionPlan::next_in(&attempt, "demo", 1, Topology::default()).unwrap();
    let mut session = Session::begin_alone(attempt.clone(), plan.common(1, 0), 0).unwrap();
    let critic = Identity { component: "critic".to_owned(), ..Identity::param("w") };
    let all = [Identity::param("w"), Identity::buffer("b"), critic.clone()];
    let chunks = all.map(|identity| {
        session.chunk(&TensorDecl::new(identity, Dtype::U8, &[3]), &Region::whole(&[3])).unwrap()
    });
    session
        .alias(Alias {
            component: "main".to_owned(),
            name: "tied".to_owned(),
            role: Role::Param,
            of: critic,
            native: Vec::new(),
        })
        .unwrap();
    let writing = session.lay_out().unwrap();
    for (number, chunk) in (1_u8..).zip(chunks) {
        writing.write_all(chunk, &[number; 3]).unwrap();
    }
    writing.finish().unwrap();
    commit(&attempt, &CommitOptions::default(), &NoProgress).unwrap();
}

fn tensors(program: &Program, out: &str) -> BTreeMap<String, Vec<u8>> {
    let bytes = fs::read(program.path(out).join("model.safetensors")).unwrap();
    let opened = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    opened.iter().map(|(name, view)| (name.to_owned(), view.data().to_vec())).collect()
}

#[test]
fn one_component_has_names_of_its_own() {
    let program = Program::new();
    saved(&program);
    program.json("export ckpt --out all", 0);
    assert_eq!(tensors(&program, "all").into_keys().collect::<Vec<_>>(), ["b", "critic/w", "w"]);
    program.json("export ckpt --out critic --component critic", 0);
    assert_eq!(tensors(&program, "critic"), BTreeMap::from([("w".to_owned(), vec![3; 3])]));
    assert_eq!(
        program.json("export ckpt --out none --component actor", 1)["error"]["code"],
        "not-found"
    );
}

#[test]
fn what_shares_data_with_nothing_that_is_written_is_written() {
    let program = Program::new();
    saved(&program);
    let done = program.json("export ckpt --out all", 0);
    assert_eq!(done["tied"], json!({ "tied": "critic/w" }));
    let done = program.json("export ckpt --out main --component main", 0);
    assert_eq!(done["tied"], json!({}));
    let expected = [("b", 2), ("tied", 3), ("w", 1)];
    let expected = expected.map(|(name, number)| (name.to_owned(), vec![number; 3]));
    assert_eq!(tensors(&program, "main"), BTreeMap::from(expected));
}

#[test]
fn what_is_there_already_is_named_as_that() {
    let program = Program::new();
    saved(&program);
    for command in
        ["copy ckpt ckpt", "reshard ckpt --out ckpt --writers 2", "export ckpt --out ckpt"]
    {
        assert_eq!(program.json(command, 1)["error"]["code"], "exists", "{command}");
    }
    assert_eq!(program.json("copy ckpt ckpt/within", 2)["error"]["code"], "bad-argument");
}
