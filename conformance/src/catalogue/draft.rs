//! How cases are written down: an id, what it is about, then what is bent and what must come of it.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use serde_json::{Map, Value, json};
use waystation_format::{Code, rule};

use super::bases;
use crate::bend::{self, Bend, Bent, Straight};
use crate::build;
use crate::case::{Case, Effect, Expect, Level, Made, Op, Outcome, Place, Profile, Step};
use crate::files::Files;
use crate::recipe::Recipe;

/// The cases so far.
#[derive(Debug, Default)]
pub struct Cases {
    cases: Vec<Case>,
    /// Bases that a case began from, by name: most begin from one of a few.
    bases: BTreeMap<String, Rc<Straight>>,
}

/// A case in the making.
#[derive(Debug)]
#[must_use = "a case is not in the suite before it is accepted or rejected"]
pub struct Draft<'a> {
    cases: &'a mut Cases,
    expect: Expect,
}

impl Cases {
    /// Begins a case of `<profile>/<slug>` about the rules, the one that it tests first.
    ///
    /// # Panics
    ///
    /// If a rule is not in the specification: a slip of the suite.
    pub fn case(&mut self, id: &str, rules: &[&str], fault: &str) -> Draft<'_> {
        for id in rules {
            assert!(rule::find(id).is_some(), "no rule {id}");
        }
        let (profile, op) = match id.split_once('/') {
            Some(("core", _)) => (Profile::Core, Op::Read),
            Some(("reshard", _)) => (Profile::Reshard, Op::Slice),
            Some(("resume", _)) => (Profile::Resume, Op::State),
            Some(("writer", _)) => (Profile::Writer, Op::Write),
            Some(("durability", _)) => (Profile::Durability, Op::Write),
            Some(("extended", _)) => (Profile::Extended, Op::Validate),
            _ => panic!("{id} begins with no profile"),
        };
        let expect = Expect {
            id: id.to_owned(),
            since: "1.0".to_owned(),
            profile,
            level: Level::Required,
            op,
            request: Map::new(),
            outcome: Outcome::Accept,
            answer: None,
            codes: Vec::new(),
            class: None,
            place: None,
            rules: rules.iter().map(|&id| id.to_owned()).collect(),
            latitude: None,
            features: Vec::new(),
            fault: fault.to_owned(),
            effect: None,
            origin: None,
            made: Made::default(),
            setup: Vec::new(),
        };
        Draft { cases: self, expect }
    }

    /// The base of that name.
    fn base(&mut self, name: &str) -> Rc<Straight> {
        let made = || {
            let recipe = bases::named(name).unwrap_or_else(|| panic!("no base {name}"));
            Rc::new(Straight::new(recipe))
        };
        self.bases.entry(name.to_owned()).or_insert_with(made).clone()
    }

    /// All of them, ascending by id.
    ///
    /// # Panics
    ///
    /// If two have one id: a slip of the suite.
    #[must_use]
    pub fn finish(mut self) -> Vec<Case> {
        self.cases.sort_by(|a, b| a.expect.id.cmp(&b.expect.id));
        let mut seen = BTreeSet::new();
        for case in &self.cases {
            assert!(seen.insert(&case.expect.id), "two cases {}", case.expect.id);
        }
        self.cases
    }
}

impl Draft<'_> {
    /// Another operation than the profile's first.
    pub fn op(mut self, op: Op) -> Self {
        self.expect.op = op;
        self
    }

    /// Members of the request.
    pub fn request(mut self, members: Value) -> Self {
        self.expect.request = members.as_object().cloned().unwrap_or_default();
        self
    }

    /// What becomes of someone's data when the case fails.
    pub fn effect(mut self, effect: Effect) -> Self {
        self.expect.effect = Some(effect);
        self
    }

    /// A SHOULD or MAY.
    pub fn level(mut self, level: Level) -> Self {
        self.expect.level = level;
        self
    }

    /// Codes as right as the first, or with [`Self::either`] acceptance, and why.
    pub fn latitude(mut self, why: &str) -> Self {
        self.expect.latitude = Some(why.to_owned());
        self
    }

    /// Where the fault is, when a step of `setup` makes it.
    pub fn file(mut self, path: &str) -> Self {
        self.expect.place = Some(Place { file: path.to_owned(), ..Place::default() });
        self
    }

    /// What git cannot hold.
    pub fn setup(mut self, step: Step) -> Self {
        self.expect.setup.push(step);
        self
    }

    /// Files of its own that share much with a base: git holds what differs.
    pub fn over(mut self, base: &str) -> Self {
        self.expect.made.base = Some(base.to_owned());
        self
    }

    /// A checkpoint of the base as it is: it must be read.
    pub fn accepts(self, base: &str) {
        let answer = build::projection(self.cases.base(base).recipe());
        self.accepts_as(base, &Bend::new("none"), answer);
    }

    /// A recipe of its own: it must be read.
    pub fn accepts_recipe(mut self, recipe: &Recipe) {
        self.expect.answer = Some(self.answer_of(recipe));
        self.push(bend::straight(recipe), None);
    }

    /// A bent checkpoint that is one all the same, with this content.
    pub fn accepts_as(mut self, base: &str, bend: &Bend, answer: Value) {
        let answer = if self.expect.op == Op::Validate { json!({"findings": []}) } else { answer };
        self.expect.answer = Some(answer);
        let bent = bend.fixed_up(&self.cases.base(base));
        self.made(base, bend, None);
        self.push(bent.files, Some(base));
    }

    /// A checkpoint of the base, and of its request this answer.
    pub fn answers(mut self, base: &str, answer: Value) {
        self.expect.answer = Some(answer);
        self.expect.made.base = Some(base.to_owned());
        let files = self.cases.base(base).files().clone();
        self.push(files, Some(base));
    }

    /// Files of its own, and of its request this answer.
    pub fn answers_files(mut self, files: Files, answer: Value) {
        self.expect.answer = Some(answer);
        self.push(files, None);
    }

    /// A bent checkpoint that must be refused with the first of the codes, or one of the others for
    /// the latitude given; and its twin, where the change leaves checksums behind.
    pub fn rejects(mut self, base: &str, bend: &Bend, codes: &[Code]) {
        self.expect.outcome = Outcome::Reject;
        self.codes(codes);
        let straight = self.cases.base(base);
        let bent = bend.fixed_up(&straight);
        self.expect.place = bent.place.clone().or(self.expect.place);
        let twin = bend.has_twin().then(|| self.twin(&straight, &bent, base, bend)).flatten();
        self.made(base, bend, bend.has_twin().then_some(true));
        self.expect.made.twin = twin.as_ref().map(|twin| twin.expect.id.clone());
        self.cases.cases.extend(twin);
        self.push(bent.files, Some(base));
    }

    /// Likewise, without a twin: of a family whose twins would all be one.
    pub fn rejects_alone(mut self, base: &str, bend: &Bend, codes: &[Code]) {
        self.expect.outcome = Outcome::Reject;
        self.codes(codes);
        let bent = bend.fixed_up(&self.cases.base(base));
        self.expect.place = bent.place.or(self.expect.place);
        self.made(base, bend, bend.has_twin().then_some(true));
        self.push(bent.files, Some(base));
    }

    /// A recipe of its own, bent, that must be refused.
    pub fn rejects_recipe(mut self, recipe: &Recipe, bend: &Bend, codes: &[Code]) {
        self.expect.outcome = Outcome::Reject;
        self.codes(codes);
        let bent = bend.fixed_up(&Straight::new(recipe.clone()));
        self.expect.place = bent.place;
        self.expect.made.mutation = Some(bend.name().to_owned());
        self.push(bent.files, None);
    }

    /// Files of its own that must be refused.
    pub fn rejects_files(mut self, files: Files, codes: &[Code]) {
        self.expect.outcome = Outcome::Reject;
        self.codes(codes);
        self.push(files, None);
    }

    /// The base as it is must be refused for what is asked of it, or done to it.
    pub fn refuses(self, base: &str, codes: &[Code]) {
        self.rejects(base, &Bend::new("none"), codes);
    }

    /// May be read with this content, or refused with one of the codes.
    pub fn either(mut self, base: &str, bend: &Bend, answer: Value, codes: &[Code]) {
        self.expect.outcome = Outcome::Either;
        assert!(self.expect.latitude.is_some(), "{}: either needs a latitude", self.expect.id);
        self.expect.answer = Some(answer);
        self.codes(codes);
        let bent = bend.fixed_up(&self.cases.base(base));
        self.made(base, bend, None);
        self.push(bent.files, Some(base));
    }

    /// Files of its own that may be read with this content, or refused with one of the codes.
    pub fn either_files(mut self, files: Files, answer: Value, codes: &[Code]) {
        self.expect.outcome = Outcome::Either;
        assert!(self.expect.latitude.is_some(), "{}: either needs a latitude", self.expect.id);
        self.expect.answer = Some(answer);
        self.codes(codes);
        self.push(files, None);
    }

    /// A run, of which this attempt must be the latest, or none.
    pub fn resumes(self, files: Files, name: Option<&str>) {
        self.resumes_in("run", files, name);
    }

    /// The same of a run whose files are much like those of another base.
    pub fn resumes_in(mut self, base: &str, files: Files, name: Option<&str>) {
        self.expect.op = Op::Latest;
        self.expect.answer = Some(json!({"name": name}));
        self.push(files, Some(base));
    }

    /// A run, of which no attempt may be named as the latest, and no fresh start be made.
    pub fn resumes_not(mut self, files: Files, codes: &[Code]) {
        self.expect.op = Op::Latest;
        self.expect.outcome = Outcome::Reject;
        self.codes(codes);
        self.push(files, Some("run"));
    }

    /// A recipe to be written into a run that holds these files; what it then holds is compared.
    pub fn writes_into(mut self, run: Files, recipe: &Recipe) {
        // To the protocol a tensor without elements stands in no box.
        let mut asked = recipe.clone();
        for writer in &mut asked.writers {
            writer.boxes.retain(|(_, _, extent)| !extent.contains(&0));
        }
        let asked = serde_json::to_value(asked).expect("a recipe is JSON");
        self.expect.request.insert("recipe".to_owned(), asked);
        self.expect.answer = Some(json!({"projection": build::projection(recipe)}));
        let base = (!run.is_empty()).then_some("run");
        self.push(run, base);
    }

    /// A recipe to be written; what it then holds is compared.
    pub fn writes(self, recipe: &Recipe) {
        self.writes_into(Files::new(), recipe);
    }

    fn answer_of(&self, recipe: &Recipe) -> Value {
        match self.expect.op {
            Op::Validate => json!({"findings": []}),
            _ => build::projection(recipe),
        }
    }

    fn codes(&mut self, codes: &[Code]) {
        self.expect.codes = codes.iter().map(|code| code.as_str().to_owned()).collect();
        self.expect.class = codes.first().map(|code| code.class().as_str().to_owned());
    }

    fn made(&mut self, base: &str, bend: &Bend, fixed_up: Option<bool>) {
        self.expect.made.base = Some(base.to_owned());
        self.expect.made.mutation = (bend.name() != "none").then(|| bend.name().to_owned());
        self.expect.made.fixed_up = fixed_up;
    }

    fn push(self, given: Files, base: Option<&str>) {
        let Self { cases, mut expect } = self;
        expect.made.base = base.map(str::to_owned).or(expect.made.base);
        cases.cases.push(Case { expect, given });
    }

    /// The same change with nothing above it made to fit: a checksum, or a length, sees it.
    fn twin(&self, straight: &Straight, fixed_up: &Bent, base: &str, bend: &Bend) -> Option<Case> {
        let bent = bend.twin(straight, fixed_up);
        let place = bent.place?;
        let (was, is) = (straight.files().get(&place.file)?, bent.files.get(&place.file)?);
        let (code, rule) = if place.file == "manifest.json" {
            (Code::DigestMismatch, "integrity.manifest")
        } else if was.len() != is.len() {
            (Code::LengthMismatch, "dir.length")
        } else if place.file.starts_with("part-") {
            (Code::DigestMismatch, "integrity.part")
        } else {
            (Code::DigestMismatch, "page.digest")
        };
        // No reader opens a part.
        let reads_it = !place.file.starts_with("part-") || code == Code::LengthMismatch;
        let (op, profile) = if reads_it && self.expect.op != Op::Validate {
            (self.expect.op, self.expect.profile)
        } else {
            (Op::Validate, Profile::Extended)
        };
        let slug = self.expect.id.split_once('/')?.1;
        let profile_name = serde_json::to_value(profile).ok()?.as_str()?.to_owned();
        let mut expect = self.expect.clone();
        expect.id = format!("{profile_name}/{slug}.stale");
        expect.op = op;
        expect.profile = profile;
        expect.rules = vec![rule.to_owned()];
        expect.codes = vec![code.as_str().to_owned()];
        expect.class = Some(code.class().as_str().to_owned());
        expect.place = Some(place);
        expect.latitude = None;
        expect.effect = Some(Effect::SilentCorruption);
        expect.fault = format!("{} What covers it was left as it was.", self.expect.fault);
        expect.made = Made {
            base: Some(base.to_owned()),
            mutation: Some(bend.name().to_owned()),
            fixed_up: Some(false),
            twin: Some(self.expect.id.clone()),
            ..Made::default()
        };
        Some(Case { expect, given: bent.files })
    }
}
