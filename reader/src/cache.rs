//! A bounded cache: what was used longest ago makes room.
//!
//! It knows keys, weights and the order of use. It must not know what it holds or how that is made.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shared values under keys, of a total weight that is kept below a bound where possible: the
/// newest value always stays.
#[derive(Debug)]
pub(crate) struct Cache<K, V>(Mutex<Inner<K, V>>);

#[derive(Debug)]
struct Inner<K, V> {
    held: HashMap<K, Held<V>>,
    weight: u64,
    most: u64,
    clock: u64,
}

#[derive(Debug)]
struct Held<V> {
    value: V,
    weight: u64,
    used: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    pub(crate) fn new(most: u64) -> Self {
        Self(Mutex::new(Inner { held: HashMap::new(), weight: 0, most, clock: 0 }))
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut inner = self.lock();
        let now = inner.tick();
        let held = inner.held.get_mut(key)?;
        held.used = now;
        Some(held.value.clone())
    }

    pub(crate) fn put(&self, key: K, value: V, weight: u64) {
        let mut inner = self.lock();
        let now = inner.tick();
        let old = inner.held.insert(key, Held { value, weight, used: now });
        let freed = old.map_or(0, |held| held.weight);
        inner.weight = inner.weight.saturating_sub(freed).saturating_add(weight);
        while inner.weight > inner.most && inner.held.len() > 1 {
            let Some(oldest) = inner.oldest() else { break };
            if let Some(gone) = inner.held.remove(&oldest) {
                inner.weight = inner.weight.saturating_sub(gone.weight);
            }
        }
    }

    /// The value under `key`, made outside the lock when it is not there: two threads may make it
    /// at once, which costs time and nothing else.
    pub(crate) fn get_or<E>(
        &self,
        key: &K,
        make: impl FnOnce() -> Result<(V, u64), E>,
    ) -> Result<V, E> {
        if let Some(value) = self.get(key) {
            return Ok(value);
        }
        let (value, weight) = make()?;
        self.put(key.clone(), value.clone(), weight);
        Ok(value)
    }

    fn lock(&self) -> MutexGuard<'_, Inner<K, V>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone, V> Inner<K, V> {
    fn tick(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(1);
        self.clock
    }

    fn oldest(&self) -> Option<K> {
        self.held.iter().min_by_key(|(_, held)| held.used).map(|(key, _)| key.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_makes_room() {
        let cache = Cache::new(10);
        cache.put(1, 'a', 5);
        cache.put(2, 'b', 5);
        assert_eq!(cache.get(&1), Some('a'));
        cache.put(3, 'c', 5);
        assert_eq!((cache.get(&1), cache.get(&2), cache.get(&3)), (Some('a'), None, Some('c')));
    }

    #[test]
    fn the_newest_stays_though_it_is_too_heavy() {
        let cache = Cache::new(10);
        cache.put(1, 'a', 5);
        cache.put(2, 'b', 50);
        assert_eq!((cache.get(&1), cache.get(&2)), (None, Some('b')));
        let kept: Result<char, ()> = cache.get_or(&2, || Ok(('x', 1)));
        assert_eq!(kept, Ok('b'));
    }
}
