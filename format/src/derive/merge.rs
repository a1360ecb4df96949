//! Merges sorted sequences by key, holding one item of each.
//!
//! It knows keys and their order. It must not know what the items are.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::Result;

/// One item of each source, least key first; of equal keys the earlier source's first.
#[derive(Debug)]
pub(super) struct Merge<I, T> {
    sources: Vec<I>,
    heads: BinaryHeap<Head<T>>,
}

#[derive(Debug)]
struct Head<T> {
    key: String,
    source: usize,
    item: T,
}

impl<I, T> Merge<I, T>
where
    I: Iterator<Item = Result<(String, T)>>,
{
    /// Takes the first item of every source.
    pub(super) fn new(sources: Vec<I>) -> Result<Self> {
        let count = sources.len();
        let mut merge = Self { sources, heads: BinaryHeap::with_capacity(count) };
        (0..count).try_for_each(|source| merge.advance(source))?;
        Ok(merge)
    }

    /// Puts the items of the least key into `group`, each with the number of its source, and
    /// returns the key; `None` at the end of all sources.
    pub(super) fn next_group(&mut self, group: &mut Vec<(usize, T)>) -> Result<Option<String>> {
        group.clear();
        let Some(first) = self.heads.pop() else { return Ok(None) };
        group.push((first.source, first.item));
        self.advance(first.source)?;
        while self.heads.peek().is_some_and(|head| head.key == first.key) {
            let Some(head) = self.heads.pop() else { break };
            group.push((head.source, head.item));
            self.advance(head.source)?;
        }
        Ok(Some(first.key))
    }

    fn advance(&mut self, source: usize) -> Result<()> {
        if let Some(next) = self.sources.get_mut(source).and_then(Iterator::next) {
            let (key, item) = next?;
            self.heads.push(Head { key, source, item });
        }
        Ok(())
    }
}

/// A heap gives its greatest first, so the order is turned round.
impl<T> Ord for Head<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key).then(other.source.cmp(&self.source))
    }
}

impl<T> PartialOrd for Head<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Head<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Head<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_in_order_with_their_sources() {
        let source = |keys: &[&str]| {
            keys.iter()
                .map(|key| Ok(((*key).to_owned(), key.len())))
                .collect::<Vec<_>>()
                .into_iter()
        };
        let mut merge =
            Merge::new(vec![source(&["a", "c"]), source(&[]), source(&["b", "c", "dd"])]).unwrap();
        let mut group = Vec::new();
        let mut seen = Vec::new();
        while let Some(key) = merge.next_group(&mut group).unwrap() {
            seen.push((key, group.clone()));
        }
        let expected = [
            ("a", vec![(0, 1)]),
            ("b", vec![(2, 1)]),
            ("c", vec![(0, 1), (2, 1)]),
            ("dd", vec![(2, 2)]),
        ];
        assert_eq!(seen, expected.map(|(key, group)| (key.to_owned(), group)));
    }

    #[test]
    fn equal_keys_come_in_the_order_of_their_sources() {
        let source = |n: usize| vec![Ok(("a".to_owned(), n)), Ok(("b".to_owned(), n))].into_iter();
        let mut merge = Merge::new((0..20).map(source).collect()).unwrap();
        let expected: Vec<(usize, usize)> = (0..20).map(|n| (n, n)).collect();
        let mut group = Vec::new();
        for key in ["a", "b"] {
            assert_eq!(merge.next_group(&mut group).unwrap().as_deref(), Some(key));
            assert_eq!(group, expected);
        }
        assert_eq!(merge.next_group(&mut group).unwrap(), None);
    }

    #[test]
    fn an_error_of_a_source_is_passed_on() {
        let broken = || Err(crate::Error::new(crate::Code::Io, "broken"));
        let source = vec![Ok(("a".to_owned(), ())), broken()].into_iter();
        let mut merge = Merge::new(vec![source]).unwrap();
        assert!(merge.next_group(&mut Vec::new()).is_err());
        assert!(Merge::<_, ()>::new(vec![vec![broken()].into_iter()]).is_err());
    }
}
