//! The members of an object.
//!
//! It knows their order and nothing of what they mean. Most objects of records have one member:
//! each takes one slot, where a node of a [`BTreeMap`](std::collections::BTreeMap) takes eleven.

use super::Value;

/// Members by name, each once, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map(Vec<(String, Value)>);

impl Map {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The member `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        let (_, value) = self.0.get(self.place(name).ok()?)?;
        Some(value)
    }

    /// The member `name`, to change it.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        let there = self.place(name).ok()?;
        self.0.get_mut(there).map(|(_, value)| value)
    }

    /// Whether there is a member `name`.
    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.place(name).is_ok()
    }

    /// The only member, if there is just one.
    #[must_use]
    pub fn sole(&self) -> Option<(&str, &Value)> {
        match self.0.as_slice() {
            [(name, value)] => Some((name, value)),
            _ => None,
        }
    }

    /// Members, ascending by name.
    pub fn iter(&self) -> std::slice::Iter<'_, (String, Value)> {
        self.0.iter()
    }

    /// Names, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(name, _)| name.as_str())
    }

    /// Values, ascending by name.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.iter().map(|(_, value)| value)
    }

    /// Values, ascending by name.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Sets the member `name`, and gives what it was. Names that come ascending cost no search.
    pub fn insert(&mut self, name: String, value: Value) -> Option<Value> {
        if self.0.last().is_none_or(|(last, _)| *last < name) {
            self.push(name, value);
            return None;
        }
        match self.place(&name) {
            Ok(there) => self.0.get_mut(there).map(|(_, old)| std::mem::replace(old, value)),
            Err(before) => {
                self.0.insert(before, (name, value));
                None
            }
        }
    }

    /// Takes the member `name` out.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        let there = self.place(name).ok()?;
        Some(self.0.remove(there).1)
    }

    fn push(&mut self, name: String, value: Value) {
        // Left alone, the first would make room for four.
        if self.0.is_empty() {
            self.0.reserve_exact(1);
        }
        self.0.push((name, value));
    }

    /// Where `name` is, or else where it would stand.
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(found, _)| found.as_str().cmp(name))
    }
}

impl<const N: usize> From<[(String, Value); N]> for Map {
    fn from(members: [(String, Value); N]) -> Self {
        members.into_iter().collect()
    }
}

/// In any order; of several of one name the last is the member.
impl FromIterator<(String, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(members: I) -> Self {
        let mut members: Vec<_> = members.into_iter().collect();
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        members.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        Self(members)
    }
}

impl IntoIterator for Map {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'m> IntoIterator for &'m Map {
    type Item = &'m (String, Value);
    type IntoIter = std::slice::Iter<'m, (String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// It answers as a map does that is known to work.
        #[test]
        fn a_map_is_one(steps in prop::collection::vec((any::<bool>(), "[a-c]{0,2}", any::<i64>()), 0..40)) {
            let (mut ours, mut model) = (Map::new(), BTreeMap::new());
            let mut given = Vec::new();
            for (put, name, number) in steps {
                if put {
                    given.push((name.clone(), Value::Int(number)));
                    prop_assert_eq!(ours.insert(name.clone(), Value::Int(number)), model.insert(name.clone(), Value::Int(number)));
                } else {
                    prop_assert_eq!(ours.remove(&name), model.remove(&name));
                }
                prop_assert_eq!(ours.get(&name), model.get(&name));
                prop_assert_eq!(ours.contains_key(&name), model.contains_key(&name));
                prop_assert_eq!(ours.len(), model.len());
                prop_assert_eq!(ours.is_empty(), model.is_empty());
                prop_assert_eq!(ours.sole().is_some(), model.len() == 1);
            }
            prop_assert!(ours.keys().eq(model.keys()));
            prop_assert!(ours.values().eq(model.values()));
            prop_assert!(ours.clone().into_iter().eq(model));
            let collected: Map = given.iter().cloned().collect();
            let model: BTreeMap<_, _> = given.into_iter().collect();
            prop_assert!(collected.into_iter().eq(model));
        }
    }

    #[test]
    fn one_member_takes_one_slot() {
        let mut map = Map::new();
        map.insert("list".to_owned(), Value::Null);
        assert_eq!(map.0.capacity(), 1);
    }
}
