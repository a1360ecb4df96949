//! Joins the records of one optimizer, each of another place.
//!
//! It knows what they must agree in, and in which order groups, params and steps come together.

use std::collections::HashMap;

use super::{Group, Optimizer, Param, StepParams, Steps};
use crate::common::Coordinate;
use crate::value_tree::Tree;
use crate::{Code, Error, Result, rule};

/// What the records of one name say together; `None` of no record.
///
/// Groups of one name become one, with the params of all places, in ascending order of place;
/// `implementation`, which is informative, is that of the first. Elements of `steps` with equal
/// `step` and `stored_as` become one; they list params, unless every record has the same for `all`.
///
/// # Errors
///
/// [`Code::StateDisagree`] when two of them do not agree.
pub fn join<'r>(
    records: impl IntoIterator<Item = (&'r Coordinate, &'r Optimizer)>,
) -> Result<Option<Optimizer>> {
    let mut records: Vec<_> = records.into_iter().collect();
    // By their indices: the axes of all are the same.
    records.sort_by(|(a, _), (b, _)| a.iter().map(index).cmp(b.iter().map(index)));
    let Some((_, first)) = records.first() else { return Ok(None) };
    let mut joining = Joining::new(first);
    for (at, record) in &records {
        joining.add(record).map_err(|message| {
            let message = format!("{message}, in the record of the place {at:?}");
            Error::rule(Code::StateDisagree, rule::OPTIMIZER_JOIN, message)
        })?;
    }
    Ok(Some(joining.finish()))
}

fn index((_, index): &(String, u64)) -> u64 {
    *index
}

/// A step count and what the framework holds it in.
type Count<'r> = (u64, &'r str);

struct Joining<'r> {
    first: &'r Optimizer,
    groups: Vec<Group>,
    /// Positions in `groups`.
    named: HashMap<&'r str, usize>,
    /// Position of each param's group.
    grouped: HashMap<&'r Param, usize>,
    steps: Vec<(Count<'r>, Vec<Param>)>,
    /// Positions in `steps`.
    counted: HashMap<Count<'r>, usize>,
    /// The count of each param that has one.
    counts: HashMap<&'r Param, Count<'r>>,
    /// What every record so far gives to `all`.
    all: Option<Count<'r>>,
}

impl<'r> Joining<'r> {
    fn new(first: &'r Optimizer) -> Self {
        Self {
            first,
            groups: Vec::new(),
            named: HashMap::new(),
            grouped: HashMap::new(),
            steps: Vec::new(),
            counted: HashMap::new(),
            counts: HashMap::new(),
            all: all(first),
        }
    }

    /// What is wrong with a record, in words.
    fn add(&mut self, record: &'r Optimizer) -> Result<(), String> {
        if record.algorithm != self.first.algorithm {
            let (expected, found) = (&self.first.algorithm, &record.algorithm);
            return Err(format!("expected the algorithm {expected:?}, found {found:?}"));
        }
        if record.masters != self.first.masters {
            let (expected, found) = (self.first.masters, record.masters);
            return Err(format!("expected masters {expected:?}, found {found:?}"));
        }
        for group in &record.groups {
            self.add_group(group)?;
        }
        self.add_steps(record)?;
        self.all = self.all.filter(|before| all(record) == Some(*before));
        Ok(())
    }

    fn add_group(&mut self, group: &'r Group) -> Result<(), String> {
        let next = self.groups.len();
        let position = *self.named.entry(&group.name).or_insert(next);
        if position == next {
            self.groups.push(Group { params: Vec::new(), ..group.clone() });
        }
        let Some(joined) = self.groups.get_mut(position) else { return Ok(()) };
        if joined.hyper != group.hyper {
            return Err(format!(
                "expected equal hyper-parameters of the group {:?}, found {}",
                group.name,
                first_difference(&joined.hyper, &group.hyper)
            ));
        }
        for param in &group.params {
            match self.grouped.insert(param, position) {
                None => joined.params.push(param.clone()),
                Some(before) if before == position => {}
                Some(_) => {
                    return Err(format!(
                        "expected {param} in a group of the same name as before, found it in {:?}",
                        group.name
                    ));
                }
            }
        }
        Ok(())
    }

    fn add_steps(&mut self, record: &'r Optimizer) -> Result<(), String> {
        for steps in &record.steps {
            let count = (steps.step, steps.stored_as.as_str());
            let params: Vec<&Param> = match &steps.params {
                StepParams::All => record.params().collect(),
                StepParams::Listed(params) => params.iter().collect(),
            };
            let next = self.steps.len();
            let position = *self.counted.entry(count).or_insert(next);
            if position == next {
                self.steps.push((count, Vec::new()));
            }
            let Some((_, joined)) = self.steps.get_mut(position) else { continue };
            for param in params {
                match self.counts.insert(param, count) {
                    None => joined.push(param.clone()),
                    Some(before) if before == count => {}
                    Some(before) => {
                        return Err(format!(
                            "expected the step {before:?} of {param}, found {count:?}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    fn finish(self) -> Optimizer {
        let steps = |(step, stored_as): Count<'_>, params| Steps {
            params,
            step,
            stored_as: stored_as.to_owned(),
        };
        let listed = self.steps.into_iter();
        Optimizer {
            algorithm: self.first.algorithm.clone(),
            groups: self.groups,
            masters: self.first.masters,
            steps: match self.all {
                Some(count) => vec![steps(count, StepParams::All)],
                None => listed.map(|(c, params)| steps(c, StepParams::Listed(params))).collect(),
            },
        }
    }
}

/// Where the hyper-parameters of a group differ from those before.
fn first_difference(before: &[(String, Tree)], now: &[(String, Tree)]) -> String {
    let differs = before.iter().zip(now).find(|(before, now)| before != now);
    match differs {
        Some(((before, _), (now, _))) if before != now => format!("{now:?} for {before:?}"),
        Some((_, (name, _))) => format!("another {name:?}"),
        None => format!("{} for {}", now.len(), before.len()),
    }
}

/// What a record gives to `all`.
fn all(record: &Optimizer) -> Option<Count<'_>> {
    match record.steps.as_slice() {
        [Steps { params: StepParams::All, step, stored_as }] => Some((*step, stored_as)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Value;

    fn record(text: &str) -> Optimizer {
        Optimizer::parse(&Value::parse(text).unwrap()).unwrap()
    }

    fn group(name: &str, lr: &str, params: &[&str]) -> String {
        let params: Vec<String> = params.iter().map(|p| format!(r#"["main","{p}"]"#)).collect();
        let params = params.join(",");
        format!(r#"{{"hyper":[["lr",{lr}]],"name":"{name}","params":[{params}]}}"#)
    }

    fn with(groups: &[String], steps: &str) -> Optimizer {
        let groups = groups.join(",");
        record(&format!(r#"{{"algorithm":"adamw","groups":[{groups}],"steps":{steps}}}"#))
    }

    fn all_at(step: u64) -> String {
        format!(r#"[{{"params":"all","step":{step},"stored_as":"int"}}]"#)
    }

    fn joined(records: &[&Optimizer]) -> Result<Option<Optimizer>> {
        let places: Vec<Coordinate> =
            (0..records.len() as u64).map(|i| vec![("pp".to_owned(), i)]).collect();
        join(places.iter().zip(records.iter().copied()))
    }

    #[test]
    fn groups_of_one_name_are_one_in_the_order_first_met() {
        let first = with(&[group("a", "1", &["x", "y"]), group("b", "2", &["z"])], &all_at(7));
        let second = with(
            &[group("c", "3", &["v"]), group("b", "2", &["w", "z"]), group("a", "1", &["y", "u"])],
            &all_at(7),
        );
        let both = with(
            &[
                group("a", "1", &["x", "y", "u"]),
                group("b", "2", &["z", "w"]),
                group("c", "3", &["v"]),
            ],
            &all_at(7),
        );
        assert_eq!(joined(&[&first, &second]).unwrap().unwrap(), both);
        assert_eq!(joined(&[&first]).unwrap().unwrap(), first);
        assert_eq!(joined(&[]).unwrap(), None);
    }

    #[test]
    fn places_come_in_order_of_their_numbers() {
        let place = |index| vec![("pp".to_owned(), index)];
        let (two, ten) = (place(2), place(10));
        let near = with(&[group("a", "1", &["x"])], &all_at(7));
        let far = with(&[group("a", "1", &["y"])], &all_at(7));
        let both = with(&[group("a", "1", &["x", "y"])], &all_at(7));
        assert_eq!(join([(&ten, &far), (&two, &near)]).unwrap().unwrap(), both);
    }

    #[test]
    fn step_counts_that_differ_are_listed() {
        let first = with(&[group("a", "1", &["x", "y"])], &all_at(7));
        let second = with(
            &[group("a", "1", &["y", "u", "v"])],
            r#"[{"params":[["main","u"]],"step":3,"stored_as":"int"},{"params":[["main","y"],["main","v"]],"step":7,"stored_as":"int"}]"#,
        );
        let both = with(
            &[group("a", "1", &["x", "y", "u", "v"])],
            r#"[{"params":[["main","x"],["main","y"],["main","v"]],"step":7,"stored_as":"int"},{"params":[["main","u"]],"step":3,"stored_as":"int"}]"#,
        );
        assert_eq!(joined(&[&first, &second]).unwrap().unwrap(), both);
        // A third that says `all` again does not make one of them.
        let third = with(&[group("a", "1", &["x"])], &all_at(7));
        assert_eq!(joined(&[&first, &second, &third]).unwrap().unwrap(), both);
        let apart = with(&[group("a", "1", &["u"])], &all_at(8));
        let listed = joined(&[&third, &apart]).unwrap().unwrap().steps;
        assert_eq!(listed.len(), 2);
    }

    #[test]
    fn records_that_disagree_do_not_join() {
        let base = with(&[group("a", "1", &["x"]), group("b", "2", &["y"])], &all_at(7));
        let mut other = base.clone();
        other.algorithm = "sgd".to_owned();
        let masters = Optimizer { masters: Some(super::super::MasterCast::Other), ..base.clone() };
        for (disagrees, why) in [
            (other, "algorithm"),
            (masters, "masters"),
            (with(&[group("a", "2", &["x"])], &all_at(7)), "hyper"),
            (with(&[group("b", "2", &["x"])], &all_at(7)), "group"),
            (with(&[group("c", "2", &["x"])], &all_at(7)), "group of another name"),
            (with(&[group("a", "1", &["x"])], &all_at(8)), "step"),
            (
                with(
                    &[group("a", "1", &["x"])],
                    r#"[{"params":"all","step":7,"stored_as":"F32[]"}]"#,
                ),
                "stored_as",
            ),
        ] {
            for pair in [[&base, &disagrees], [&disagrees, &base]] {
                let error = joined(&pair).unwrap_err();
                assert_eq!(error.code(), Code::StateDisagree, "{why}");
                assert_eq!(error.rule_id(), Some("optimizer.join"), "{why}");
            }
        }
        let agrees = with(&[group("a", "1", &["x"])], &all_at(7));
        joined(&[&base, &agrees]).unwrap();
        // One that gives no step agrees with any.
        let silent = with(&[group("a", "1", &["x", "v"])], "[]");
        let both = joined(&[&silent, &base]).unwrap().unwrap();
        let counted = r#"[{"params":[["main","x"],["main","y"]],"step":7,"stored_as":"int"}]"#;
        let groups = [group("a", "1", &["x", "v"]), group("b", "2", &["y"])];
        assert_eq!(both, with(&groups, counted));
    }
}
