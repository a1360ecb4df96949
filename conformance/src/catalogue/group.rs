//! Cases that share profile, base and effect: so that a family of faults is a list.

use waystation_format::Code;

use super::{Cases, bases};
use crate::bend::Bend;
use crate::build;
use crate::case::Effect;

/// What the cases to come have in common.
#[derive(Debug)]
pub(super) struct Group<'a> {
    cases: &'a mut Cases,
    profile: &'static str,
    base: &'static str,
    effect: Effect,
    twins: bool,
}

impl<'a> Group<'a> {
    /// Cases `<profile>/…` of bent checkpoints of the base.
    pub(super) fn new(
        cases: &'a mut Cases,
        profile: &'static str,
        base: &'static str,
        effect: Effect,
    ) -> Self {
        Self { cases, profile, base, effect, twins: true }
    }

    /// Without twins, which would say the same of each of them.
    pub(super) fn alone(mut self) -> Self {
        self.twins = false;
        self
    }

    /// A bent checkpoint that must be refused with the code.
    pub(super) fn bad(&mut self, slug: &str, rules: &[&str], fault: &str, bend: &Bend, code: Code) {
        let case =
            self.cases.case(&format!("{}/{slug}", self.profile), rules, fault).effect(self.effect);
        if self.twins {
            case.rejects(self.base, bend, &[code]);
        } else {
            case.rejects_alone(self.base, bend, &[code]);
        }
    }

    /// A bent checkpoint that must be read all the same, with the content of its recipe.
    pub(super) fn good(&mut self, slug: &str, rules: &[&str], special: &str, bend: &Bend) {
        let recipe = bases::named(self.base).expect("a group's base is one of the suite");
        self.cases
            .case(&format!("{}/{slug}", self.profile), rules, special)
            .effect(Effect::LostCheckpoint)
            .accepts_as(self.base, bend, build::projection(&bend.bent(&recipe)));
    }
}
