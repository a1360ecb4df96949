//! The neutral form of a stream: what a record of kind `rng` holds of it.
//!
//! It knows the state and the caches. Names, coordinates and canaries are the record's.

use waystation_format::records::rng::{Cache as RecordedCache, OnReshape, Origin, State};
use waystation_format::records::{Integer, Stream};
use waystation_format::{Code, Error, Result, RngAlgorithm, RngCache};

use super::engine::{Engine, canary};

/// Raw outputs in the canary of a record that is made here.
const OUTPUTS: usize = 4;

/// What a sampler keeps beside an engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cache {
    /// A kind of the registry, or another.
    pub kind: String,
    /// The value's bits, in the low bits where the kind is narrower than 64.
    pub bits: u64,
}

impl Cache {
    /// A cache of a registered kind.
    #[must_use]
    pub fn new(kind: RngCache, bits: u64) -> Self {
        Self { kind: kind.as_str().to_owned(), bits }
    }
}

/// A stream in the neutral form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// The engine.
    pub algorithm: RngAlgorithm,
    /// Its canonical state.
    pub state: Vec<u8>,
    /// What samplers keep, ascending by kind; what is not filled is left out.
    pub caches: Vec<Cache>,
    /// What the framework says it was seeded with; informative.
    pub initial_seed: Option<u64>,
}

impl StreamState {
    /// A stream without caches.
    ///
    /// # Errors
    ///
    /// [`Code::BadRngState`] as [`Engine::decode`].
    pub fn new(algorithm: RngAlgorithm, state: Vec<u8>) -> Result<Self> {
        Engine::decode(algorithm, &state)?;
        Ok(Self { algorithm, state, caches: Vec::new(), initial_seed: None })
    }

    /// The stream of `framework` as a record says it, with a canary of four outputs. A stream that was
    /// forked still needs its lineage, and what it is for may be said.
    ///
    /// # Errors
    ///
    /// [`Code::BadRngState`] as [`Engine::decode`].
    pub fn to_record(&self, on_reshape: OnReshape, framework: &str) -> Result<Stream> {
        let spelled = |cache: &Cache| {
            let bits = RngCache::from_id(&cache.kind).map_or(u64::BITS, RngCache::bits);
            let digits = usize::try_from(bits / 4).unwrap_or_default();
            RecordedCache { bits: format!("{:0digits$x}", cache.bits), kind: cache.kind.clone() }
        };
        Ok(Stream {
            algorithm: self.algorithm.as_str().to_owned(),
            caches: self.caches.iter().map(spelled).collect(),
            fork: None,
            next_raw: canary(self.algorithm, &self.state, OUTPUTS)?,
            on_reshape,
            origin: Some(Origin {
                form: None,
                framework: framework.to_owned(),
                initial_seed: self.initial_seed.map(Integer::from),
                version: None,
            }),
            purpose: None,
            seed_rule: None,
            state: State::Inline(self.state.clone()),
        })
    }

    /// The stream of a record, whose state's bytes are `state`, wherever they stand.
    ///
    /// # Errors
    ///
    /// The reason, for an algorithm or cache that is not registered. Nothing else is checked.
    pub fn of_record(record: &Stream, state: Vec<u8>) -> std::result::Result<Self, String> {
        let algorithm = record
            .known_algorithm()
            .ok_or_else(|| format!("the algorithm {:?} is not registered", record.algorithm))?;
        let mut caches = Vec::with_capacity(record.caches.len());
        for cache in &record.caches {
            let known = RngCache::from_id(&cache.kind);
            let bits = known.and_then(|_| u64::from_str_radix(&cache.bits, 16).ok());
            let bits =
                bits.ok_or_else(|| format!("the cache {:?} is not registered", cache.kind))?;
            caches.push(Cache { kind: cache.kind.clone(), bits });
        }
        let origin = record.origin.as_ref();
        let initial_seed = origin.and_then(|origin| origin.initial_seed.as_ref()?.to_u64());
        Ok(Self { algorithm, state, caches, initial_seed })
    }

    /// The engine at this state.
    ///
    /// # Errors
    ///
    /// [`Code::BadRngState`] as [`Engine::decode`].
    pub fn engine(&self) -> Result<Engine> {
        Engine::decode(self.algorithm, &self.state)
    }

    /// The bits of the cache of this kind, if it is filled.
    #[must_use]
    pub fn cache(&self, kind: RngCache) -> Option<u64> {
        self.caches.iter().find(|cache| cache.kind == kind.as_str()).map(|cache| cache.bits)
    }

    /// Refuses what a form that holds no other algorithms and caches than these would lose.
    pub(super) fn expect(
        &self,
        form: &str,
        algorithms: &[RngAlgorithm],
        caches: &[RngCache],
    ) -> Result<()> {
        if !algorithms.contains(&self.algorithm) {
            return Err(cannot_hold(form, self.algorithm.as_str()));
        }
        let known = |cache: &&Cache| caches.iter().any(|kind| kind.as_str() == cache.kind);
        match self.caches.iter().find(|cache| !known(cache)) {
            Some(lost) => Err(cannot_hold(form, &format!("a cache {}", lost.kind))),
            None => Ok(()),
        }
    }
}

/// A stream that has no such form.
#[cold]
fn cannot_hold(form: &str, what: &str) -> Error {
    Error::new(Code::BadArgument, format!("the form {form} cannot hold {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_stream_has_its_canary_and_its_caches_in_their_widths() {
        let engine = Engine::seeded(RngAlgorithm::Pcg64XslRr, 3).unwrap();
        let mut stream =
            StreamState::new(RngAlgorithm::Pcg64XslRr, engine.encode().unwrap()).unwrap();
        stream.caches = vec![Cache::new(RngCache::NumpyU32Half, 0x2a)];
        let record = stream.to_record(OnReshape::Fork, "numpy").unwrap();
        assert_eq!(record.caches[0].bits, "0000002a");
        assert_eq!(record.next_raw.len(), OUTPUTS);
        // It is one that a reader takes.
        assert_eq!(Stream::parse(&record.to_value()).unwrap(), record);
        super::super::check_canary(stream.algorithm, &stream.state, &record.next_raw).unwrap();
    }
}
