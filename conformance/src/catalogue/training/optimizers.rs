//! Chapter 16.2: optimizers, their form, how the records of places are joined, and the tensors that are theirs.

use serde_json::{Value, json};
use waystation_format::Code;

use super::super::{Cases, bases};
use super::asking::{place, said};
use super::held::{Wrong, bent, placed, recipe, record, right_forms, wrong_forms};
use crate::bend::{Bend, straight};
use crate::case::Effect;
use crate::recipe::Recipe;

pub(super) fn add(cases: &mut Cases) {
    forms(cases);
    joined(cases);
    tensors(cases);
}

fn lr() -> Value {
    json!(["lr", {"f64": "3f50624dd2f1a9fc"}])
}

/// A value with every member and two groups.
fn full() -> Value {
    json!({"algorithm": "adamw", "groups": [
            {"hyper": [lr(), ["betas", {"tuple": [{"f64": "3feccccccccccccd"}, {"f64": "3feff7ced916872b"}]}],
                ["foreach", null], ["maximize", false]],
             "implementation": [["fused", true]], "name": "decay", "params": [["main", "w"], ["main", "v"]]},
            {"hyper": [], "name": "none", "params": [["critic", "w"]]}],
        "masters": {"cast": "stochastic"},
        "steps": [{"params": [["main", "v"], ["critic", "w"]], "step": 1000, "stored_as": "F32[]"},
            {"params": [["main", "w"]], "step": 0, "stored_as": "int"}]})
}

fn forms(cases: &mut Cases) {
    let form: &[&str] = &["optimizer.form"];
    let wrong = |slug, fault, pointer, value| -> Wrong<'static> {
        (slug, form, fault, pointer, value, Code::BadMember)
    };
    let name = |slug, fault, pointer| -> Wrong<'static> {
        (slug, &["identity.name", "optimizer.form"], fault, pointer, json!(""), Code::BadName)
    };
    let table = [
        wrong(
            "optimizer-group-twice",
            "Two groups have one name.",
            "/value/groups/1/name",
            json!("decay"),
        ),
        wrong(
            "optimizer-param-in-two-groups",
            "A parameter stands in two groups.",
            "/value/groups/1/params/0",
            json!(["main", "v"]),
        ),
        wrong(
            "optimizer-param-twice",
            "A parameter stands in a group twice.",
            "/value/groups/0/params/1",
            json!(["main", "w"]),
        ),
        wrong(
            "optimizer-param-in-two-steps",
            "A parameter has two counts of steps.",
            "/value/steps/1/params/0",
            json!(["main", "v"]),
        ),
        wrong(
            "optimizer-param-twice-in-steps",
            "A parameter stands twice with one count of steps.",
            "/value/steps/0/params/1",
            json!(["main", "v"]),
        ),
        wrong(
            "optimizer-all-not-alone",
            "`all` stands beside another count of steps.",
            "/value/steps/1/params",
            json!("all"),
        ),
        wrong(
            "optimizer-all-twice",
            "`all` stands twice.",
            "/value/steps",
            json!([{"params": "all", "step": 1, "stored_as": "int"}, {"params": "all", "step": 1, "stored_as": "int"}]),
        ),
        wrong(
            "optimizer-all-misspelt",
            "`ALL` stands for all parameters.",
            "/value/steps",
            json!([{"params": "ALL", "step": 1, "stored_as": "int"}]),
        ),
        wrong(
            "optimizer-hyper-twice",
            "A hyper-parameter stands twice in a group.",
            "/value/groups/0/hyper/3",
            lr(),
        ),
        wrong(
            "optimizer-hyper-map",
            "Hyper-parameters are an object.",
            "/value/groups/0/hyper",
            json!({"lr": {"f64": "3f50624dd2f1a9fc"}}),
        ),
        wrong(
            "optimizer-hyper-bare-list",
            "A hyper-parameter is a bare list.",
            "/value/groups/0/hyper/1/1",
            json!([1, 2]),
        ),
        wrong(
            "optimizer-cast-other",
            "Parameters are made of masters in a way that there is not.",
            "/value/masters/cast",
            json!("truncate"),
        ),
        wrong(
            "optimizer-masters-empty",
            "It is not said how parameters are made of masters.",
            "/value/masters/cast",
            Value::Null,
        ),
        wrong(
            "optimizer-step-negative",
            "A count of steps is negative.",
            "/value/steps/0/step",
            json!(-1),
        ),
        wrong(
            "optimizer-step-float",
            "A count of steps is a float.",
            "/value/steps/0/step",
            json!({"f32": "447a0000"}),
        ),
        wrong(
            "optimizer-without-steps",
            "An optimizer has no `steps`.",
            "/value/steps",
            Value::Null,
        ),
        wrong(
            "optimizer-without-groups",
            "An optimizer has no `groups`.",
            "/value/groups",
            Value::Null,
        ),
        wrong(
            "optimizer-without-params",
            "A group has no parameters, not even none.",
            "/value/groups/1/params",
            Value::Null,
        ),
        wrong(
            "optimizer-param-alone",
            "A parameter is given without its component.",
            "/value/groups/1/params/0",
            json!("w"),
        ),
        wrong(
            "optimizer-param-three",
            "A parameter is given by three names.",
            "/value/groups/1/params/0",
            json!(["critic", "w", ""]),
        ),
        wrong(
            "optimizer-unknown-member",
            "An optimizer has a member more.",
            "/value/state",
            json!({}),
        ),
        wrong(
            "optimizer-unknown-group-member",
            "A group has a hyper-parameter beside `hyper`.",
            "/value/groups/0/lr",
            json!({"f64": "3f50624dd2f1a9fc"}),
        ),
        name(
            "optimizer-stored-as-empty",
            "What a count is held in has no letter.",
            "/value/steps/0/stored_as",
        ),
        name(
            "optimizer-group-name-empty",
            "The name of a group has no letter.",
            "/value/groups/0/name",
        ),
        name(
            "optimizer-param-name-empty",
            "The name of a parameter has no letter.",
            "/value/groups/0/params/0/1",
        ),
    ];
    wrong_forms(cases, &record("optimizer", "adam", full()), &table);
    let nothing = json!({"algorithm": "sgd", "groups": [], "steps": []});
    right_forms(
        cases,
        &[
            (
                "optimizer-every-member",
                form,
                "An optimizer with every member, two groups and two counts of steps.",
                record("optimizer", "adam", full()),
            ),
            (
                "optimizer-nothing",
                form,
                "An optimizer without groups.",
                record("optimizer", "adam", nothing),
            ),
        ],
    );
}

/// One place of a pipeline: a group of parameters, all of one count.
fn stage(params: Value, step: u64) -> Value {
    json!({"algorithm": "adamw", "groups": [{"hyper": [lr(), ["eps", {"f64": "3e45798ee2308c3a"}]], "name": "all", "params": params}],
        "masters": {"cast": "nearest-even"},
        "steps": [{"params": "all", "step": step, "stored_as": "int"}]})
}

/// Two stages of a pipeline, which share an embedding.
fn stages(first: &Value, second: &Value) -> (Recipe, Value) {
    let at = |index: u64, value: &Value| {
        placed("optimizer", "adam", json!([["pp", index]]), value.clone())
    };
    let mut recipe = recipe(&[at(0, first), at(1, second)]);
    recipe.topology = vec![("pp".into(), 2)];
    (recipe, at(1, second))
}

fn joined(cases: &mut Cases) {
    let first = stage(json!([["main", "embed"], ["main", "a"]]), 1000);
    let second = stage(json!([["main", "b"], ["main", "embed"]]), 1000);
    let (good, changed) = stages(&first, &second);
    let rules: &[&str] = &["optimizer.join"];
    let ask = || place(&[("pp", 3, 2)]).request();
    let nothing = || said(&[], &[], &[]);
    let mut accepted = |slug: &str, what: &str, recipe: &Recipe| {
        cases
            .case(&format!("resume/join-{slug}"), rules, what)
            .over("bare")
            .effect(Effect::LostCheckpoint)
            .request(ask())
            .answers_files(straight(recipe), nothing());
    };
    accepted("stages", "Two stages of a pipeline with a parameter of both, on three.", &good);
    let mut listed = second.clone();
    listed["steps"] = json!([{"params": [["main", "b"]], "step": 7, "stored_as": "F32[]"}]);
    accepted(
        "steps-of-one",
        "The parameter of both has its count of steps in one record only.",
        &stages(&first, &listed).0,
    );
    let mut groups = second.clone();
    groups["groups"] = json!([{"hyper": [], "implementation": [["fused", true]], "name": "more", "params": [["main", "b"]]}]);
    accepted(
        "other-groups",
        "The second stage has a group that the first has not.",
        &stages(&first, &groups).0,
    );

    let group = |member: &str, value: Value| {
        let mut changed = second.clone();
        changed["groups"][0][member] = value;
        changed
    };
    let mut other_group = second.clone();
    other_group["groups"] =
        json!([{"hyper": [lr()], "name": "other", "params": [["main", "b"], ["main", "embed"]]}]);
    let mut without_masters = second.clone();
    without_masters.as_object_mut().map(|members| members.remove("masters"));
    let eps = || json!(["eps", {"f64": "3e45798ee2308c3a"}]);
    let with = |pointer: &str, value: Value| {
        let mut changed = second.clone();
        *changed.pointer_mut(pointer).expect("a member") = value;
        changed
    };
    let rows: [(&str, &str, Value); 10] = [
        ("algorithm", "The stages have different algorithms.", with("/algorithm", json!("adam"))),
        (
            "masters",
            "The stages make parameters of masters in different ways.",
            with("/masters/cast", json!("stochastic")),
        ),
        ("masters-missing", "One stage says nothing of masters, the other does.", without_masters),
        (
            "hyper-value",
            "A hyper-parameter of a group differs in its last bit.",
            with("/groups/0/hyper/0/1/f64", json!("3f50624dd2f1a9fd")),
        ),
        (
            "hyper-order",
            "The hyper-parameters of a group come in another order.",
            group("hyper", json!([eps(), lr()])),
        ),
        (
            "hyper-type",
            "A hyper-parameter of a group is 1 at one stage and true at the other.",
            group("hyper", json!([["lr", true], eps()])),
        ),
        (
            "hyper-missing",
            "A hyper-parameter of a group is there at one stage only.",
            group("hyper", json!([lr()])),
        ),
        ("group-of-param", "The parameter of both stands in groups of two names.", other_group),
        (
            "step",
            "The parameter of both has two counts of steps.",
            with("/steps/0/step", json!(999)),
        ),
        (
            "stored-as",
            "The count of the parameter of both is held in two ways.",
            with("/steps/0/stored_as", json!("F32[]")),
        ),
    ];
    for (slug, fault, value) in rows {
        let (mut recipe, mut changed) = (good.clone(), changed.clone());
        if slug == "hyper-type" {
            let mut one = first.clone();
            one["groups"][0]["hyper"] = json!([["lr", 1], eps()]);
            (recipe, changed) = stages(&one, &second);
        }
        let bend = bent(&recipe, &changed, "/value", &value);
        cases
            .case(&format!("resume/join-{slug}"), rules, fault)
            .over("bare")
            .effect(Effect::WrongResume)
            .request(ask())
            .rejects_recipe(&recipe, &bend, &[Code::StateDisagree]);
    }
}

/// A checkpoint of the parameter `w`, a buffer, an optimizer and an average.
fn trained() -> Recipe {
    let mut recipe = bases::bare();
    let nothing = |entry: Value| -> Value {
        let mut entry = entry;
        entry["dtype"] = json!("F32");
        entry["shape"] = json!([0]);
        entry
    };
    let entries = [
        json!({"name": "w", "role": "param"}),
        json!({"name": "seen", "role": "buffer"}),
        json!({"name": "w", "owner": "adam", "role": "optimizer", "slot": "adam.m"}),
        json!({"name": "w", "role": "master"}),
        json!({"name": "w", "owner": "ema", "role": "ema"}),
        json!({"name": "seen", "owner": "ema", "role": "ema"}),
        json!({"name": "v", "role": "param"}),
    ];
    for (seed, entry) in (20..).zip(entries) {
        let number = bases::add(&mut recipe, nothing(entry), seed);
        bases::whole(&mut recipe, 0, number);
    }
    recipe.writers[0].records.push(bases::adam());
    recipe.writers[0].records.push(record("ema", "ema", json!({"updates": 1000})));
    recipe
}

fn tensors(cases: &mut Cases) {
    let dangling =
        |cases: &mut Cases, slug: &str, rule: &str, fault: &str, act: &dyn Fn(&mut Recipe)| {
            let mut recipe = trained();
            act(&mut recipe);
            cases
                .case(&format!("extended/{slug}"), &[rule], fault)
                .effect(Effect::WrongResume)
                .rejects_recipe(&recipe, &Bend::new("another recipe"), &[Code::Dangling]);
        };
    let accepted =
        |cases: &mut Cases, slug: &str, rules: &[&str], what: &str, act: &dyn Fn(&mut Recipe)| {
            let mut recipe = trained();
            act(&mut recipe);
            cases
                .case(&format!("extended/{slug}"), rules, what)
                .effect(Effect::LostCheckpoint)
                .accepts_recipe(&recipe);
        };
    let params = |recipe: &mut Recipe, params: Value| {
        recipe.writers[0].records[1]["value"]["groups"][0]["params"] = params
    };
    let omit = |recipe: &mut Recipe, component: &str, names: &[&str]| {
        recipe.writers[0]
            .omitted
            .push(json!({"component": component, "names": names, "reason": "frozen"}));
    };
    accepted(
        cases,
        "optimizer-tensors",
        &["optimizer.params", "optimizer.owner", "optimizer.slot"],
        "A parameter, its moment, master and average, and the average of a buffer.",
        &|_| {},
    );
    accepted(
        cases,
        "optimizer-params-alias",
        &["optimizer.params"],
        "An optimizer has an alias among its parameters.",
        &|recipe| {
            // What an alias names has elements.
            recipe.tensors[1].entry["shape"] = json!([1]);
            recipe.writers[0].boxes[1] = (1, vec![0], vec![1]);
            let of = json!(["main", "param", "w", "", "", []]);
            let alias = json!({"name": "tied", "of": of, "role": "param"});
            recipe.writers[0].aliases.push(alias);
            params(recipe, json!([["main", "w"], ["main", "tied"]]));
        },
    );
    accepted(
        cases,
        "optimizer-params-omitted",
        &["optimizer.params", "optimizer.slot"],
        "An optimizer, a master and an average of a parameter that is omitted.",
        &|recipe| {
            params(recipe, json!([["main", "w"], ["main", "frozen"]]));
            omit(recipe, "main", &["frozen"]);
            for tensor in [5, 4, 3] {
                recipe.tensors[tensor].entry["name"] = json!("frozen");
            }
        },
    );
    accepted(
        cases,
        "optimizer-without-slots",
        &["optimizer.slot"],
        "An optimizer that has made no slots yet: absent is not zero.",
        &|recipe| {
            recipe.writers[0].boxes.retain(|(tensor, _, _)| *tensor != 3);
            recipe.tensors[3].entry = recipe.tensors[0].entry.clone();
        },
    );
    no_cast(cases);
    dangling(
        cases,
        "optimizer-params-missing",
        "optimizer.params",
        "An optimizer has a parameter that is not there.",
        &|recipe| params(recipe, json!([["main", "w"], ["main", "x"]])),
    );
    dangling(
        cases,
        "optimizer-params-component",
        "optimizer.params",
        "An optimizer has a parameter of a component that is not there.",
        &|recipe| params(recipe, json!([["main", "w"], ["critic", "w"]])),
    );
    dangling(
        cases,
        "optimizer-params-buffer",
        "optimizer.params",
        "An optimizer has a buffer among its parameters.",
        &|recipe| params(recipe, json!([["main", "w"], ["main", "seen"]])),
    );
    dangling(
        cases,
        "optimizer-params-omitted-elsewhere",
        "optimizer.params",
        "An optimizer has a parameter that another component omits.",
        &|recipe| {
            params(recipe, json!([["main", "w"], ["main", "frozen"]]));
            omit(recipe, "critic", &["frozen"]);
        },
    );
    dangling(
        cases,
        "optimizer-owner-missing",
        "optimizer.owner",
        "A moment belongs to an optimizer that is not there.",
        &|recipe| recipe.tensors[3].entry["owner"] = json!("sgd"),
    );
    dangling(
        cases,
        "optimizer-owner-average",
        "optimizer.owner",
        "A moment belongs to an average.",
        &|recipe| recipe.tensors[3].entry["owner"] = json!("ema"),
    );
    dangling(
        cases,
        "ema-owner-optimizer",
        "optimizer.owner",
        "An average belongs to an optimizer.",
        &|recipe| recipe.tensors[5].entry["owner"] = json!("adam"),
    );
    dangling(
        cases,
        "optimizer-slot-other",
        "optimizer.slot",
        "A moment is of a parameter that its optimizer does not have, though it is there.",
        &|recipe| recipe.tensors[3].entry["name"] = json!("v"),
    );
    dangling(
        cases,
        "optimizer-slot-component",
        "optimizer.slot",
        "A moment is of another component than its parameter.",
        &|recipe| {
            recipe.tensors[3].entry.insert("component".into(), json!("critic"));
        },
    );
    dangling(
        cases,
        "master-without-param",
        "optimizer.slot",
        "A master is of a parameter that is not there.",
        &|recipe| recipe.tensors[4].entry["name"] = json!("x"),
    );
    dangling(cases, "master-of-buffer", "optimizer.slot", "A master is of a buffer.", &|recipe| {
        recipe.tensors[4].entry["name"] = json!("seen")
    });
    dangling(
        cases,
        "ema-of-nothing",
        "optimizer.slot",
        "An average is of neither a parameter nor a buffer.",
        &|recipe| recipe.tensors[6].entry["name"] = json!("x"),
    );
}

/// What is kept beside a parameter in another dtype.
fn no_cast(cases: &mut Cases) {
    let mut recipe = bases::empty();
    let entries = [
        json!({"dtype": "BF16", "name": "w", "role": "param", "shape": [3]}),
        json!({"dtype": "F32", "name": "w", "owner": "adam", "role": "optimizer", "shape": [3], "slot": "adam.m"}),
        json!({"dtype": "F32", "name": "w", "role": "master", "shape": [3]}),
        json!({"dtype": "F64", "name": "w", "owner": "ema", "role": "ema", "shape": [3]}),
    ];
    for (seed, entry) in (30..).zip(entries) {
        let number = bases::add(&mut recipe, entry, seed);
        bases::whole(&mut recipe, 0, number);
    }
    let average = record("ema", "ema", json!({"updates": 1000}));
    recipe.writers[0].records.extend([bases::progress(), bases::adam(), average]);
    cases
        .case(
            "core/optimizer-no-cast",
            &["optimizer.no-cast"],
            "A parameter in BF16 whose moment and master are in F32 and whose average is in F64.",
        )
        .effect(Effect::SilentCorruption)
        .accepts_recipe(&recipe);
}
