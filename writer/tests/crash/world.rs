//! What a reader sees on a disk that lost power, held against what it may see.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use waystation_format::Code;
use waystation_reader::{State, latest, list};
use waystation_store::testing::{Bound, Coverage, CrashingFs, Image};

use super::content::Content;
use super::job::Job;

/// What the protocol promises and a disk did not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// `latest` answers none, or one older than what was durable.
    Lost,
    /// `latest` answers what nobody committed yet.
    Early,
    /// A commit that reported success is not the latest.
    Undone,
    /// A checkpoint says other than what was saved.
    Mixed,
    /// A commit file above something that is not whole.
    Damaged,
    /// What repairs it by the specification did not.
    Unrepaired,
}

/// What is left of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    Whole,
    Uncommitted,
    Deleted,
    Damaged(String),
    Mixed(String),
}

/// What a reader sees of a run.
#[derive(Debug)]
pub struct Seen {
    pub fingerprint: u64,
    pub latest: Result<String, Code>,
    pub attempts: BTreeMap<String, Left>,
}

/// The saves of a simulation, and all disks that were looked at.
#[derive(Default)]
pub struct World {
    contents: BTreeMap<String, Content>,
    seen: HashMap<u64, Rc<Seen>>,
    /// By the fingerprint of its directory.
    attempts: HashMap<(String, u64), Option<String>>,
    /// Was damaged before, and is being repaired.
    pub damaged: Option<String>,
}

/// What came of all crashes of a simulation.
#[derive(Debug, Default)]
pub struct Tally {
    pub points: usize,
    /// Points with every subset of what was not durable, but for bytes that nobody read.
    pub exhaustive: usize,
    /// Changes not durable at once, at most.
    pub pending: usize,
    /// Subsets of them all, of all points: what the states stand for.
    pub subsets: f64,
    pub states: usize,
    /// States in which bytes were read that were not durable.
    pub torn: usize,
    pub distinct: HashSet<u64>,
    /// How often, and the first place.
    pub broken: BTreeMap<Broken, (usize, String)>,
}

/// What may be seen at a crash point: the names that `latest` may answer.
pub type May<'m> = dyn Fn(usize) -> Vec<String> + 'm;

/// What is tried on a disk that was seen at a crash point, and what went wrong with it.
pub type Repair<'r> = dyn FnMut(&mut World, &Image, &Seen, usize) -> Result<(), String> + 'r;

impl World {
    pub fn of(jobs: &[&Job]) -> Self {
        let contents = jobs.iter().map(|job| (job.name(), job.content())).collect();
        Self { contents, ..Self::default() }
    }

    /// What a reader sees; each disk is looked at once.
    pub fn look(&mut self, image: &Image) -> Rc<Seen> {
        let fingerprint = image.fingerprint();
        if let Some(seen) = self.seen.get(&fingerprint) {
            return Rc::clone(seen);
        }
        let run = image.memory().store();
        let mut attempts = BTreeMap::new();
        for listed in list(&run).unwrap() {
            let left = match listed.state {
                State::Complete { .. } => match self.mixed(image, &listed.name) {
                    None => Left::Whole,
                    Some(why) => Left::Mixed(why),
                },
                State::Uncommitted => Left::Uncommitted,
                State::Deleted => Left::Deleted,
                other => Left::Damaged(format!("{other:?}")),
            };
            attempts.insert(listed.name, left);
        }
        let latest = latest(&run).map(|latest| latest.name).map_err(|e| e.code());
        let seen = Rc::new(Seen { fingerprint, latest, attempts });
        if !image.was_read() {
            self.seen.insert(fingerprint, Rc::clone(&seen));
        }
        seen
    }

    /// Why a checkpoint is not what was saved under its name.
    fn mixed(&mut self, image: &Image, name: &str) -> Option<String> {
        let key = (name.to_owned(), image.fingerprint_of(name).unwrap());
        if let Some(known) = self.attempts.get(&key) {
            return known.clone();
        }
        let store = image.memory().store().dir(name).unwrap().unwrap();
        let why = match Content::of(&store) {
            Err(e) => Some(e.to_string()),
            Ok(content) if content != self.contents[name] => Some("other content".to_owned()),
            Ok(_) => None,
        };
        if !image.was_read() {
            self.attempts.insert(key, why.clone());
        }
        why
    }

    /// Everything that is wrong with what is seen, where `latest` may answer any of `may`.
    pub fn judge(&self, seen: &Seen, may: &[String]) -> Vec<(Broken, String)> {
        let mut found = Vec::new();
        for (name, left) in &seen.attempts {
            match left {
                Left::Whole | Left::Uncommitted | Left::Deleted => {}
                Left::Damaged(_) if self.damaged.as_ref() == Some(name) => {}
                Left::Damaged(why) => found.push((Broken::Damaged, format!("{name}: {why}"))),
                Left::Mixed(why) => found.push((Broken::Mixed, format!("{name}: {why}"))),
            }
        }
        match &seen.latest {
            Ok(name) if may.contains(name) => {}
            Ok(name) if may.iter().all(|may| rank(may) < rank(name)) => {
                found.push((Broken::Early, name.clone()));
            }
            // Only the new one may be: it was reported durable.
            Ok(name) if may.len() == 1 => found.push((Broken::Undone, name.clone())),
            Ok(name) => found.push((Broken::Lost, name.clone())),
            Err(code) => found.push((Broken::Lost, code.to_string())),
        }
        found
    }

    /// Crashes `fs` at every point from `from` on, looks at every disk that may be left, and hands
    /// each to `repair`, equal ones of one crash point once.
    pub fn crash_everywhere(
        &mut self,
        fs: &CrashingFs,
        from: usize,
        bound: &Bound,
        may: &May<'_>,
        repair: &mut Repair<'_>,
    ) -> Tally {
        let mut tally = Tally::default();
        let log = fs.log();
        for point in from..=fs.points() {
            let may = may(point);
            let crash = fs.crash(point);
            let bound = Bound { seed: bound.seed.wrapping_add(point as u64), ..*bound };
            let (coverage, mut images) = crash.shapes(&bound);
            let mut exhaustive = coverage == Coverage::Exhaustive;
            tally.points += 1;
            tally.pending = tally.pending.max(crash.pending());
            tally.subsets += 2_f64.powi(i32::try_from(crash.pending()).unwrap());
            let place = || match point.checked_sub(1) {
                Some(last) => format!("after {:?}", log[last]),
                None => "before all".to_owned(),
            };
            let mut here = HashSet::new();
            while let Some(image) = images.pop() {
                tally.states += 1;
                if !here.insert(image.fingerprint()) {
                    continue;
                }
                let seen = self.look(&image);
                for (broken, why) in self.judge(&seen, &may) {
                    tally.note(broken, || format!("{}: {why}", place()));
                }
                tally.distinct.insert(seen.fingerprint);
                if let Err(why) = repair(self, &image, &seen, point) {
                    tally.note(Broken::Unrepaired, || format!("{}: {why}", place()));
                }
                // Where bytes were read that were not durable, whatever else they may be comes, too.
                let (all, settled) = image.settled();
                exhaustive &= all == Coverage::Exhaustive;
                tally.torn += usize::from(!settled.is_empty());
                images.extend(settled);
            }
            tally.exhaustive += usize::from(exhaustive);
        }
        tally
    }
}

impl Tally {
    fn note(&mut self, broken: Broken, why: impl FnOnce() -> String) {
        self.broken.entry(broken).or_insert_with(|| (0, why())).0 += 1;
    }

    pub fn add(&mut self, other: Self) {
        self.points += other.points;
        self.exhaustive += other.exhaustive;
        self.pending = self.pending.max(other.pending);
        self.subsets += other.subsets;
        self.states += other.states;
        self.torn += other.torn;
        self.distinct.extend(other.distinct);
        for (broken, (count, why)) in other.broken {
            self.broken.entry(broken).or_insert((0, why)).0 += count;
        }
    }

    /// Prints the counts, and fails where something broke or too little was looked at, or where bytes
    /// were read that were not durable: whatever has its name is.
    pub fn hold(&self, what: &str, least: usize) {
        self.print(what);
        assert!(self.broken.is_empty(), "{what}: {:#?}", self.broken);
        assert_eq!(self.torn, 0, "{what}: bytes were read that were not durable");
        assert!(!super::ALL_POINTS || self.exhaustive == self.points, "{what}");
        assert!(self.distinct.len() >= least, "{what}: {} states", self.distinct.len());
    }

    pub fn print(&self, what: &str) {
        println!(
            "{what}: {} crash points, {} of them with every subset and the others with samples, of up \
             to {} changes; {:.0} subsets as {} states, {} distinct",
            self.points,
            self.exhaustive,
            self.pending,
            self.subsets,
            self.states,
            self.distinct.len()
        );
    }
}

/// The order of `latest`.
fn rank(name: &str) -> (u32, u64) {
    let (step, attempt) = waystation_format::names::parse_attempt_dir(name).unwrap();
    (attempt.timeline, step)
}
