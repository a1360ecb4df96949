//! `commit`: saves, keepers and repairs on a disk that fails once in each, and then loses power. Whatever is on the disk
//! afterwards, every checkpoint is whole and says what was saved; the latest is one that was durable and nobody gave up, or a newer
//! one; and there is none only where none was durable.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use waystation_format::records::{Progress, Typed};
use waystation_format::{
    Attempt, Code, Dtype, Error, Identity, Incarnation, Record, Region, Topology, names,
};
use waystation_reader::{NoProgress, State, latest, list};
use waystation_store::testing::{Bound, CrashingFs, Errno, FailingFs, Image, Op};
use waystation_store::{DirStore, Store};
use waystation_writer::{
    CommitOptions, GcPolicy, SalvageOptions, Session, SessionPlan, TensorDecl, commit, delete, gc,
    make_attempt, reject, salvage,
};

use crate::reader::{self, Content};

/// What is done one after the other.
const MOST_STEPS: usize = 5;
/// Which states of the disk are looked at after a crash.
const BOUND: Bound = Bound { exhaustive: 3, sampled: 6, seed: 7 };

/// Something that a process does to a run. A job and a keeper are one process each time.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A save of so many writers, by the job of a timeline.
    Save { timeline: u32, writers: u32 },
    /// Another commit of the attempt that was begun last.
    Commit,
    /// A salvage of it.
    Salvage,
    /// A keeper that keeps one.
    Gc,
    /// The latest is rejected.
    Reject,
    /// The attempt that was begun first is removed.
    Delete,
}

/// A fault that one call meets.
#[derive(Clone, Copy, Debug)]
struct Fault {
    op: Op,
    nth: usize,
    errno: Errno,
    /// Whether the call is made all the same.
    lost_reply: bool,
}

/// What became of an attempt, by crash points: how many calls had changed something then.
#[derive(Clone, Debug, Default)]
struct Fate {
    content: Option<Content>,
    /// A commit was begun; from here it may be the latest.
    may: Option<usize>,
    /// A commit reported success; from here it must not be lost.
    durable: Option<usize>,
    /// Someone began to reject or remove it.
    given_up: Option<usize>,
    /// It was rejected or removed, durably.
    gone: Option<usize>,
}

/// Does what the bytes stand for, and loses power.
///
/// # Panics
/// If a disk that is left shows something else than may be there.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let _ = story(&mut u);
}

fn story(u: &mut Unstructured<'_>) -> Result<()> {
    let crashing = CrashingFs::new();
    let mut world = World::on(crashing.clone());
    for _ in 0..u.int_in_range(1..=MOST_STEPS)? {
        let step = step(u)?;
        let failing = FailingFs::new(crashing.clone());
        if u.arbitrary()? {
            let Fault { op, nth, errno, lost_reply } = fault(u)?;
            if lost_reply {
                failing.lose_reply(op, nth, errno);
            } else {
                failing.fail(op, nth, errno);
            }
        }
        if u.ratio(1, 4)? {
            // Fewer bytes at a time make changes by the thousand, and the disk takes the square of it.
            failing.limit_transfer(u.int_in_range(200..=3000)?);
        }
        // A new process opens the directory anew: that an fsync failed once the one before knew.
        if let Ok(run) = DirStore::open(Arc::new(failing), Path::new("")) {
            let run: Arc<dyn Store> = Arc::new(run);
            world.act(step, &run);
        }
    }
    let points = crashing.points();
    world.look(&crashing.crash(points).nothing_more(), points);
    for _ in 0..2 {
        let point = u.int_in_range(0..=points)?;
        for image in crashing.crash(point).images(&BOUND).1 {
            world.look(&image, point);
        }
    }
    Ok(())
}

fn step(u: &mut Unstructured<'_>) -> Result<Step> {
    Ok(match u.int_in_range(0..=9)? {
        0 => Step::Commit,
        1 => Step::Salvage,
        2 => Step::Gc,
        3 => Step::Reject,
        4 => Step::Delete,
        _ => Step::Save { timeline: u.int_in_range(1..=3)?, writers: u.int_in_range(1..=2)? },
    })
}

fn fault(u: &mut Unstructured<'_>) -> Result<Fault> {
    const OPS: &[Op] = &[
        Op::MakeDir,
        Op::List,
        Op::Stat,
        Op::OpenRead,
        Op::Create,
        Op::ReadAt,
        Op::WriteAt,
        Op::Allocate,
        Op::SyncFile,
        Op::Close,
        Op::SyncDir,
        Op::Link,
        Op::Unlink,
        Op::RemoveDir,
        Op::OpenDir,
    ];
    Ok(Fault {
        op: *u.choose(OPS)?,
        nth: u.int_in_range(1..=12)?,
        errno: *u.choose(&[
            Errno::IO,
            Errno::NOSPC,
            Errno::INTR,
            Errno::ACCESS,
            Errno::STALE,
            Errno::OPNOTSUPP,
        ])?,
        lost_reply: u.arbitrary()?,
    })
}

struct World {
    crashing: CrashingFs,
    fates: BTreeMap<String, Fate>,
    /// Attempts in the order in which they were begun.
    order: Vec<String>,
    saves: u64,
    /// The last step of each timeline.
    steps: BTreeMap<u32, u64>,
    /// Attempts that were read, by the fingerprint of what the disk holds of them.
    read: RefCell<HashSet<(String, u64)>>,
}

impl World {
    fn on(crashing: CrashingFs) -> Self {
        Self {
            crashing,
            fates: BTreeMap::new(),
            order: Vec::new(),
            saves: 0,
            steps: BTreeMap::new(),
            read: RefCell::default(),
        }
    }

    fn now(&self) -> usize {
        self.crashing.points()
    }

    fn act(&mut self, step: Step, run: &Arc<dyn Store>) {
        match step {
            Step::Save { timeline, writers } => self.save(run, timeline, writers),
            Step::Commit => {
                if let Some(name) = self.order.last().cloned() {
                    self.commit(run, &name, |attempt, run, name| {
                        let mut options = CommitOptions::in_run(Arc::clone(run), name);
                        options.threads = 1;
                        commit(attempt, &options, &NoProgress).map(drop)
                    });
                }
            }
            Step::Salvage => {
                if let Some(name) = self.order.last().cloned() {
                    self.commit(run, &name, |attempt, run, name| {
                        let mut options = SalvageOptions::new();
                        options.run = Some(Arc::clone(run));
                        options.name = Some(name.to_owned());
                        salvage(attempt, &options, &NoProgress).map(drop)
                    });
                }
            }
            Step::Gc => self.give_up(run, None, |run| {
                let report = gc(run, &GcPolicy::keep_last(1))?;
                let failed = report
                    .items
                    .iter()
                    .any(|item| matches!(item.fate, waystation_writer::Fate::Failed(_)));
                if failed {
                    Err(Error::new(Code::Io, "an attempt could not be removed"))
                } else {
                    Ok(())
                }
            }),
            Step::Delete => {
                if let Some(name) = self.order.first().cloned() {
                    self.give_up(run, Some(&name), |run| delete(run, &name));
                }
            }
            Step::Reject => {
                let Ok(found) = latest(&self.crashing.store()) else { return };
                let begun = self.now();
                let done = run
                    .dir(&found.name)
                    .map(|attempt| attempt.map(|attempt| reject(&attempt, "bad")));
                let now = self.now();
                let fate = self.fates.entry(found.name).or_default();
                fate.given_up.get_or_insert(begun);
                if matches!(done, Ok(Some(Ok(())))) {
                    fate.gone.get_or_insert(now);
                }
            }
        }
    }

    /// Something that may remove attempts: all but the latest, or one of them.
    fn give_up(
        &mut self,
        run: &Arc<dyn Store>,
        only: Option<&str>,
        act: impl FnOnce(&Arc<dyn Store>) -> waystation_format::Result<()>,
    ) {
        let begun = self.now();
        let kept = latest(&self.crashing.store()).ok().map(|found| found.name);
        // What comes of it is seen on the disk: here it matters only what may be gone from when on.
        let _ = act(run);
        for (name, fate) in &mut self.fates {
            if kept.as_ref() != Some(name) && only.is_none_or(|only| only == name) {
                fate.given_up.get_or_insert(begun);
            }
        }
    }

    fn save(&mut self, run: &Arc<dyn Store>, timeline: u32, writers: u32) {
        self.saves += 1;
        // A job that resumed begins again at a step that those before it had passed.
        let own = self.steps.entry(timeline).or_insert(0);
        *own += 10;
        let (saves, step) = (self.saves, *own);
        let plan = SessionPlan {
            run: "fuzz".to_owned(),
            timeline,
            nonce: [u8::try_from(timeline).unwrap_or(0); 16],
            writers,
            topology: Topology(vec![("dp".to_owned(), 2)]),
            parent: None,
            block_bytes: 4096,
        };
        let name = names::attempt_dir(step, &plan.attempt(step, saves));
        self.fates.entry(name.clone()).or_default().content = Some(content(&plan, step, saves));
        self.order.push(name.clone());
        if write(run, &plan, step, saves).is_ok() {
            self.commit(run, &name, |attempt, run, name| {
                let mut options = CommitOptions::in_run(Arc::clone(run), name);
                options.threads = 1;
                commit(attempt, &options, &NoProgress).map(drop)
            });
        }
    }

    fn commit(
        &mut self,
        run: &Arc<dyn Store>,
        name: &str,
        act: impl FnOnce(&Arc<dyn Store>, &Arc<dyn Store>, &str) -> waystation_format::Result<()>,
    ) {
        let begun = self.now();
        let Ok(Some(attempt)) = run.dir(name) else { return };
        let done = act(&attempt, run, name);
        let now = self.now();
        let fate = self.fates.get_mut(name).expect("it was begun");
        fate.may.get_or_insert(begun);
        if done.is_ok() {
            fate.durable.get_or_insert(now);
        }
    }

    /// What a reader sees on a disk that lost power after the first `point` calls.
    fn look(&self, image: &Image, point: usize) {
        let run = image.memory().store();
        let reached = |at: Option<usize>| at.is_some_and(|at| at <= point);
        for listed in list(&run).expect("a disk in memory can be listed") {
            let fate = self
                .fates
                .get(&listed.name)
                .unwrap_or_else(|| panic!("nobody began {}", listed.name));
            match listed.state {
                State::Complete { .. } => {
                    assert!(
                        reached(fate.may),
                        "{} is complete, and nobody committed it",
                        listed.name
                    );
                    let print = image.fingerprint_of(&listed.name).unwrap_or(0);
                    if !self.read.borrow_mut().insert((listed.name.clone(), print)) {
                        continue;
                    }
                    let store = run.dir(&listed.name).expect("listed").expect("listed");
                    let answers = reader::answers(&store);
                    assert!(answers.findings.is_empty(), "{}: {:?}", listed.name, answers.findings);
                    let read = answers.read.expect("it was verified");
                    assert_eq!(
                        Some(&read),
                        fate.content.as_ref(),
                        "{} says something else",
                        listed.name
                    );
                }
                State::Uncommitted | State::Deleted => {}
                other => panic!("{} after {point} calls: {other:?}", listed.name),
            }
        }
        let rank = |name: &str| -> (u32, u64, Attempt) {
            let (step, attempt) = names::parse_attempt_dir(name).expect("the name of an attempt");
            (attempt.timeline, step, attempt)
        };
        let kept =
            self.fates.iter().filter(|(_, fate)| reached(fate.durable) && !reached(fate.given_up));
        let best = kept.map(|(name, _)| name).max_by_key(|name| rank(name));
        match (latest(&run), best) {
            (Ok(found), best) => {
                let fate = &self.fates[&found.name];
                assert!(reached(fate.may), "{} is the latest, and nobody committed it", found.name);
                assert!(!reached(fate.gone), "{} is the latest, and was rejected", found.name);
                let newer = best.is_none_or(|best| rank(&found.name) >= rank(best));
                assert!(newer, "{} is the latest, and {best:?} was durable", found.name);
            }
            (Err(e), None) => {
                assert!(matches!(e.code(), Code::NoCheckpoint | Code::NoneResumable), "{e}");
            }
            (Err(e), Some(best)) => panic!("{best} was durable, after {point} calls {e}"),
        }
    }
}

/// Every writer from its session to its part, one after the other.
fn write(
    run: &Arc<dyn Store>,
    plan: &SessionPlan,
    step: u64,
    save: u64,
) -> waystation_format::Result<()> {
    let (_, attempt) = make_attempt(run, plan, step, save)?;
    let decl = TensorDecl::new(Identity::param("w"), Dtype::U8, &[2, 2100]);
    for writer in 0..plan.writers {
        let inc = Incarnation(save << 8 | u64::from(writer));
        let mut session =
            Session::with_incarnation(Arc::clone(&attempt), plan.common(step, save), writer, inc)?;
        let rows = 2 / u64::from(plan.writers);
        let region = Region::new(&[u64::from(writer) * rows, 0], &[rows, 2100]);
        let chunk = session.chunk(&decl, &region)?;
        let progress = Progress { optimizer_step: step, ..Progress::default() };
        session.record(Record::of("main", vec![], &Typed::Progress(progress))?);
        if writer == 0 {
            session.attach_bytes("config.json", b"{}")?;
        }
        session.set_options({
            let mut options = waystation_writer::SessionOptions::default();
            options.threads = 1;
            options
        });
        let writing = session.lay_out()?;
        let bytes = vec![save as u8; rows as usize * 2100];
        writing.write_all(chunk, &bytes)?;
        writing.finish()?;
    }
    Ok(())
}

/// What a save says, read from a disk on which nothing happened.
fn content(plan: &SessionPlan, step: u64, save: u64) -> Content {
    let run = waystation_store::MemoryFs::new().store();
    write(&run, plan, step, save).expect("nothing fails");
    let name = names::attempt_dir(step, &plan.attempt(step, save));
    let attempt = run.dir(&name).expect("made just now").expect("made just now");
    commit(&attempt, &CommitOptions::default(), &NoProgress).expect("nothing fails");
    reader::open(&attempt)
        .and_then(|checkpoint| reader::everything(&checkpoint))
        .expect("nothing fails")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> World {
        let crashing = CrashingFs::new();
        let mut world = World::on(crashing.clone());
        world.act(Step::Save { timeline: 1, writers: 2 }, &crashing.store());
        world
    }

    #[test]
    fn a_save_is_old_or_new_after_every_call() {
        let world = saved();
        for point in 0..=world.now() {
            for image in world.crashing.crash(point).images(&BOUND).1 {
                world.look(&image, point);
            }
        }
    }

    #[test]
    fn a_checkpoint_that_is_lost_or_mixed_or_early_is_noticed() {
        let mut world = saved();
        let all = world.now();
        let fails = |world: &World, point: usize, claimed: usize| {
            let image = world.crashing.crash(point).nothing_more();
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.look(&image, claimed)))
                .is_err()
        };
        assert!(!fails(&world, all, all));
        assert!(fails(&world, all - 3, all), "lost: the run was not synced");
        assert!(fails(&world, all, 3), "early: nobody had committed it");
        for fate in world.fates.values_mut() {
            fate.content.as_mut().unwrap().step += 1;
        }
        world.read.take();
        assert!(fails(&world, all, all), "mixed: it says something else");
    }
}
