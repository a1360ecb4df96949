//! Optimizers: groups, hyper-parameters and step counts (16.2).
//!
//! It knows the form of one record and how those of one name join. It must not know tensors: that
//! parameters and slots are there is for a validator.

mod join;

use std::collections::HashSet;
use std::fmt;

use super::read::Reader;
use super::write;
use crate::json::Value;
use crate::value_tree::Tree;
use crate::{Result, rule};

pub use join::join;

const READER: Reader = Reader::new(rule::OPTIMIZER_FORM);
/// What stands for every param of the record's groups.
const ALL: &str = "all";

/// The `value` of a record of kind `optimizer`, or what several of one name say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optimizer {
    /// `adamw`, `sgd`, …; not interpreted.
    pub algorithm: String,
    /// Groups of parameters, in the framework's order.
    pub groups: Vec<Group>,
    /// How parameters are made of masters, where there are masters.
    pub masters: Option<MasterCast>,
    /// How often each parameter was updated.
    pub steps: Vec<Steps>,
}

/// Parameters that share hyper-parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Hyper-parameters as they are now.
    pub hyper: Vec<(String, Tree)>,
    /// How it is computed; informative.
    pub implementation: Option<Vec<(String, Tree)>>,
    /// The group's name, distinct among those of the record.
    pub name: String,
    /// Its parameters, in the framework's order.
    pub params: Vec<Param>,
}

/// A parameter, by component and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Param {
    /// A model of the job.
    pub component: String,
    /// The parameter's own name.
    pub name: String,
}

impl fmt::Display for Param {
    /// As a record lists it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:?},{:?}]", self.component, self.name)
    }
}

/// How parameters are made of masters; informative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MasterCast {
    /// Rounded to the nearest, ties to even.
    NearestEven,
    /// Rounded at random.
    Stochastic,
    /// In another way.
    Other,
}

/// How often some parameters were updated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Which.
    pub params: StepParams,
    /// How often.
    pub step: u64,
    /// What the framework holds the count in: `int`, or a dtype and `[]`.
    pub stored_as: String,
}

/// Which parameters a step count is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepParams {
    /// Those of all groups of the record.
    All,
    /// These.
    Listed(Vec<Param>),
}

impl MasterCast {
    /// As it stands in a record.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NearestEven => "nearest-even",
            Self::Stochastic => "stochastic",
            Self::Other => "other",
        }
    }

    /// The one that is spelled so.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::NearestEven, Self::Stochastic, Self::Other]
            .into_iter()
            .find(|cast| cast.as_str() == word)
    }
}

impl Optimizer {
    /// Reads the `value` of a record.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`](crate::Code::BadMember) for another form, with the pointer from the top
    /// of `value`.
    pub fn parse(value: &Value) -> Result<Self> {
        let mut members = READER.object(value)?;
        let optimizer = Self {
            algorithm: members.required("algorithm", |value| READER.name(value, "algorithm"))?,
            groups: members.required("groups", groups)?,
            masters: members.optional("masters", masters)?,
            steps: members.required("steps", steps)?,
        };
        members.end()?;
        Ok(optimizer)
    }

    /// The `value` of a record; [`parse`](Self::parse) checks it.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let masters =
            self.masters.map(|cast| write::object([("cast", Some(write::text(cast.as_str())))]));
        write::object([
            ("algorithm", Some(write::text(self.algorithm.as_str()))),
            ("groups", Some(write::list(&self.groups, Group::to_value))),
            ("masters", masters),
            ("steps", Some(write::list(&self.steps, Steps::to_value))),
        ])
    }

    /// The parameters of all groups, in their order.
    pub fn params(&self) -> impl Iterator<Item = &Param> {
        self.groups.iter().flat_map(|group| &group.params)
    }
}

impl Group {
    fn parse(value: &Value) -> Result<Self> {
        let mut members = READER.object(value)?;
        let group = Self {
            hyper: members.required("hyper", |value| READER.named_list(value))?,
            implementation: members.optional("implementation", |value| READER.named_list(value))?,
            name: members.required("name", |value| READER.name(value, "name of a group"))?,
            params: members.required("params", params)?,
        };
        members.end()?;
        Ok(group)
    }

    fn to_value(&self) -> Value {
        write::object([
            ("hyper", Some(write::named_list(&self.hyper))),
            ("implementation", self.implementation.as_deref().map(write::named_list)),
            ("name", Some(write::text(self.name.as_str()))),
            ("params", Some(params_value(&self.params))),
        ])
    }
}

impl Steps {
    fn parse(value: &Value) -> Result<Self> {
        let mut members = READER.object(value)?;
        let steps = Self {
            params: members.required("params", step_params)?,
            step: members.required("step", |value| READER.count(value))?,
            stored_as: members
                .required("stored_as", |value| READER.name(value, "form of a step"))?,
        };
        members.end()?;
        Ok(steps)
    }

    fn to_value(&self) -> Value {
        let params = match &self.params {
            StepParams::All => write::text(ALL),
            StepParams::Listed(params) => params_value(params),
        };
        write::object([
            ("params", Some(params)),
            ("step", Some(write::count(self.step))),
            ("stored_as", Some(write::text(self.stored_as.as_str()))),
        ])
    }
}

fn groups(value: &Value) -> Result<Vec<Group>> {
    let mut names = HashSet::new();
    let mut seen = HashSet::new();
    READER.list(value, |_, item| {
        let group = Group::parse(item)?;
        if !names.insert(group.name.clone()) {
            let message = format!("expected each group's name once, found {:?} again", group.name);
            return Err(READER.bad(message).in_member("name"));
        }
        apart(&group.params, &mut seen, "group")?;
        Ok(group)
    })
}

fn steps(value: &Value) -> Result<Vec<Steps>> {
    let mut seen = HashSet::new();
    let mut all = false;
    READER.list(value, |index, item| {
        let steps = Steps::parse(item)?;
        let is_all = steps.params == StepParams::All;
        if all || (is_all && index > 0) {
            let message = format!("expected {ALL:?} alone in steps, found another element");
            return Err(READER.bad(message).in_member("params"));
        }
        all = is_all;
        if let StepParams::Listed(params) = &steps.params {
            apart(params, &mut seen, "element of steps")?;
        }
        Ok(steps)
    })
}

/// Checks that no param stands in an earlier list, and remembers those of this one.
fn apart(params: &[Param], seen: &mut HashSet<Param>, list: &str) -> Result<()> {
    for (index, param) in params.iter().enumerate() {
        if !seen.insert(param.clone()) {
            let message = format!("expected each param in one {list}, found {param} in another");
            return Err(READER.bad(message).in_item(index).in_member("params"));
        }
    }
    Ok(())
}

fn masters(value: &Value) -> Result<MasterCast> {
    const WORDS: &str = "nearest-even, stochastic or other";
    let mut members = READER.object(value)?;
    let cast =
        members.required("cast", |value| READER.word(value, WORDS, MasterCast::from_word))?;
    members.end()?;
    Ok(cast)
}

fn step_params(value: &Value) -> Result<StepParams> {
    match value {
        Value::List(_) => params(value).map(StepParams::Listed),
        _ => {
            READER.word(value, "params or \"all\"", |word| (word == ALL).then_some(StepParams::All))
        }
    }
}

fn params(value: &Value) -> Result<Vec<Param>> {
    let mut seen = HashSet::new();
    READER.list(value, |_, item| {
        let component = |value| READER.name(value, "component");
        let name = |value| READER.name(value, "tensor name");
        let (component, name) = READER.pair(item, "[component, name]", component, name)?;
        let param = Param { component, name };
        if !seen.insert(param.clone()) {
            return Err(READER.bad(format!("expected each param once, found {param} again")));
        }
        Ok(param)
    })
}

fn params_value(params: &[Param]) -> Value {
    write::list(params, |param| {
        let text = |text: &String| write::text(text.as_str());
        Value::List(vec![text(&param.component), text(&param.name)])
    })
}
