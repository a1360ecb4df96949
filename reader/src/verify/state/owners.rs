//! Who belongs to whom: params that optimizers list, and tensors that belong to a record and to a
//! param.
//!
//! It knows names, kept while pages go by one after another. It must not know what the tensors
//! hold.

use std::collections::{HashMap, HashSet};

use waystation_format::records::Optimizer;
use waystation_format::{Code, Entry, Error, Identity, Result, Role, names, rule};

use super::Place;
use crate::checkpoint::Checkpoint;
use crate::progress::{Progress, go_on};

/// Component and name.
type Pair = (String, String);

/// What the records say of tensors.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// The params of each optimizer, by its name.
    optimizers: HashMap<String, HashSet<Pair>>,
    averages: HashSet<String>,
    /// Once a record or tensor asked for them.
    names: Option<Names>,
}

impl Owners {
    /// Notes the params of an optimizer's record. What is wrong with them, in their order, each with
    /// the number of the record.
    ///
    /// # Errors
    /// `interrupted`, breaches of the pages.
    pub(super) fn optimizer(
        &mut self,
        checkpoint: &Checkpoint,
        progress: &dyn Progress,
        optimizer: &Optimizer,
        place: &Place,
    ) -> Result<Vec<(u64, Error)>> {
        let names = Names::once(&mut self.names, checkpoint, progress)?;
        let known = self.optimizers.entry(place.key.name.clone()).or_default();
        let mut found = Vec::new();
        for (group, of) in optimizer.groups.iter().enumerate() {
            for (index, param) in of.params.iter().enumerate() {
                let pair = (param.component.clone(), param.name.clone());
                if !names.has_param(&pair, true) {
                    let message = format!(
                        "expected a param or alias of component {:?} and name {:?}, found none",
                        pair.0, pair.1
                    );
                    let error = Error::rule(Code::Dangling, rule::OPTIMIZER_PARAMS, message);
                    let pointer = format!("/groups/{group}/params/{index}");
                    found.push((place.at, place.of(error.at_pointer(pointer))));
                }
                known.insert(pair);
            }
        }
        Ok(found)
    }

    pub(super) fn average(&mut self, name: &str) {
        self.averages.insert(name.to_owned());
    }

    /// What is wrong with tensors that belong to a record, once all records are noted.
    ///
    /// # Errors
    /// `interrupted`, breaches of the pages.
    pub(super) fn check(
        &mut self,
        checkpoint: &Checkpoint,
        progress: &dyn Progress,
    ) -> Result<Vec<Error>> {
        let owned = |role: &Role| matches!(role, Role::Optimizer | Role::Ema | Role::Master);
        let contents = &checkpoint.manifest().contents;
        if !contents.iter().any(|(_, roles)| roles.iter().any(|(role, _)| owned(role))) {
            return Ok(Vec::new());
        }
        Names::once(&mut self.names, checkpoint, progress)?;
        let Some(names) = &self.names else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for page in 0..checkpoint.tensor_pages() {
            go_on(progress)?;
            for entry in checkpoint.entries_in_pages(page..page.saturating_add(1)) {
                let entry = entry?;
                let Entry::Tensor(tensor) = &*entry else { continue };
                if owned(&tensor.identity.role)
                    && let Some(error) = self.breach(&tensor.identity, names)
                {
                    let key = tensor.identity.key();
                    found.push(error.in_file(names::tensors_page(page)).in_tensor(key));
                }
            }
        }
        Ok(found)
    }

    fn breach(&self, identity: &Identity, names: &Names) -> Option<Error> {
        let pair = (identity.component.clone(), identity.name.clone());
        let dangling = |rule, message: String| Some(Error::rule(Code::Dangling, rule, message));
        let owner = &identity.owner;
        let unowned = |kind: &str| {
            let message =
                format!("expected a record of kind {kind} and name {owner:?}, found none");
            dangling(rule::OPTIMIZER_OWNER, message)
        };
        let no_param = || {
            let message = format!("expected a param of its name {:?}, found none", identity.name);
            dangling(rule::OPTIMIZER_SLOT, message)
        };
        match identity.role {
            Role::Optimizer => match self.optimizers.get(owner) {
                None => unowned("optimizer"),
                Some(params) if params.contains(&pair) => None,
                Some(_) => dangling(
                    rule::OPTIMIZER_SLOT,
                    format!("expected {:?} among the params of the optimizer {owner:?}", pair.1),
                ),
            },
            Role::Ema if !self.averages.contains(owner) => unowned("ema"),
            Role::Ema if names.has_param(&pair, false) || names.buffers.contains(&pair) => None,
            Role::Master if names.has_param(&pair, false) => None,
            _ => no_param(),
        }
    }
}

/// Names of params and buffers, with those that are declared omitted.
#[derive(Debug)]
struct Names {
    params: HashSet<Pair>,
    aliases: HashSet<Pair>,
    buffers: HashSet<Pair>,
}

impl Names {
    /// Those of the checkpoint, gone through once.
    fn once<'n>(
        known: &'n mut Option<Self>,
        checkpoint: &Checkpoint,
        progress: &dyn Progress,
    ) -> Result<&'n Self> {
        match known {
            Some(names) => Ok(names),
            None => Ok(known.insert(Self::of(checkpoint, progress)?)),
        }
    }

    fn of(checkpoint: &Checkpoint, progress: &dyn Progress) -> Result<Self> {
        let mut names =
            Self { params: HashSet::new(), aliases: HashSet::new(), buffers: HashSet::new() };
        for omitted in &checkpoint.manifest().omitted {
            let pairs = omitted.names.iter().map(|name| (omitted.component.clone(), name.clone()));
            names.params.extend(pairs);
        }
        for page in 0..checkpoint.tensor_pages() {
            go_on(progress)?;
            for entry in checkpoint.entries_in_pages(page..page.saturating_add(1)) {
                names.add(&*entry?);
            }
        }
        Ok(names)
    }

    fn add(&mut self, entry: &Entry) {
        match entry {
            Entry::Tensor(tensor) => {
                let identity = &tensor.identity;
                let pair = || (identity.component.clone(), identity.name.clone());
                match identity.role {
                    Role::Param => self.params.insert(pair()),
                    Role::Buffer => self.buffers.insert(pair()),
                    _ => return,
                };
            }
            Entry::Alias(alias) if alias.role == Role::Param => {
                self.aliases.insert((alias.component.clone(), alias.name.clone()));
            }
            Entry::Alias(_) => {}
        }
    }

    fn has_param(&self, pair: &Pair, or_alias: bool) -> bool {
        self.params.contains(pair) || (or_alias && self.aliases.contains(pair))
    }
}
