//! What each writer writes, read by each reader: whether implementations understand each other. Knows adapters
//! and recipes; the content that is compared is what the case says.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};
use waystation_format::{Code, Error, Result};
use waystation_state::Stop;

use super::adapter::{Adapter, Implementation, Limits};
use super::answer::{Answer, Crash};
use super::compare::differences;
use super::place::Placed;
use super::report::plain;
use super::session::{Watcher, unless_stopped};
use super::wrote;
use crate::case::{Case, Op, Outcome, Profile};
use crate::files::Files;

/// One implementation of several.
#[derive(Clone, Debug)]
pub struct Party {
    /// As it stands in the table.
    pub name: String,
    /// Its adapter's program and arguments.
    pub command: Vec<OsString>,
}

/// Everything that was written and read.
#[derive(Clone, Debug, Serialize)]
pub struct Matrix {
    /// Version of the specification.
    pub spec: String,
    /// Version of the suite.
    pub suite: String,
    /// Who took part.
    pub parties: Vec<Participant>,
    /// Recipes.
    pub recipes: usize,
    /// For each writer and each reader.
    pub cells: Vec<Cell>,
}

/// Who took part.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Participant {
    pub name: String,
    pub implementation: Implementation,
    pub writes: bool,
    pub reads: bool,
}

/// What one wrote and another read.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Cell {
    /// Who wrote.
    pub writer: String,
    /// Who read.
    pub reader: String,
    /// Recipes whose content came through.
    pub same: usize,
    /// Recipes that one of them does not do.
    pub skipped: usize,
    /// The others.
    pub different: Vec<Difference>,
}

/// A recipe whose content did not come through.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Difference {
    /// The case of the recipe.
    pub case: String,
    /// Why not, a line each.
    pub why: Vec<String>,
}

/// Has every party that claims `writer` write every recipe that is to be written, and every party that claims
/// `core` read it.
///
/// # Errors
/// [`Code::BadArgument`] when no recipe is chosen or nobody writes or reads; those of adapters that do not start.
pub fn matrix(
    cases: &[Case],
    parties: &[Party],
    limits: Limits,
    watcher: &dyn Watcher,
) -> Result<Matrix> {
    let recipe = |case: &&Case| {
        let Case { expect, .. } = case;
        expect.profile == Profile::Writer
            && expect.op == Op::Write
            && expect.outcome == Outcome::Accept
    };
    let recipes: Vec<&Case> = cases.iter().filter(recipe).collect();
    let stop = watcher.stop();
    let seats =
        parties.iter().map(|party| Seat::new(party, limits, &stop)).collect::<Result<Vec<_>>>();
    let mut seats = unless_stopped(&stop, seats)?;
    let of = |seats: &[Seat<'_>], profile| {
        let numbered = seats.iter().enumerate();
        numbered.filter(|(_, seat)| seat.claims(profile)).map(|(at, _)| at).collect::<Vec<usize>>()
    };
    let (writers, readers) = (of(&seats, Profile::Writer), of(&seats, Profile::Core));
    let lacks = [
        ("recipe", recipes.len()),
        ("adapter that writes", writers.len()),
        ("adapter that reads", readers.len()),
    ];
    if let Some((what, _)) = lacks.iter().find(|(_, many)| *many == 0) {
        return Err(Error::new(Code::BadArgument, format!("expected some {what}, found none")));
    }
    watcher.begin(recipes.len().saturating_mul(writers.len()));
    let mut cells = Vec::new();
    for writer in writers {
        let mut row: Vec<Cell> = Vec::new();
        for reader in &readers {
            let name =
                |at: usize| seats.get(at).map(|seat| seat.party.name.clone()).unwrap_or_default();
            let (writer, reader) = (name(writer), name(*reader));
            row.push(Cell { writer, reader, same: 0, skipped: 0, different: Vec::new() });
        }
        for case in &recipes {
            unless_stopped(&stop, Ok(()))?;
            let placed = Placed::new(&Files::new(), &[]);
            let placed =
                placed.map_err(|_| Error::new(Code::Io, "make a directory to write into"))?;
            let out = wrote::out(case.expect.request.get("recipe"), placed.root());
            let wrote = seats.get_mut(writer).map(|seat| seat.write(case, &out));
            for (cell, reader) in row.iter_mut().zip(&readers) {
                let read = match &wrote {
                    Some(Came::Through) => seats.get_mut(*reader).map(|seat| seat.read(case, &out)),
                    other => other.clone(),
                };
                cell.count(case, read.unwrap_or(Came::NotDone));
            }
            watcher.advance();
        }
        unless_stopped(&stop, Ok(()))?;
        cells.extend(row);
    }
    let parties = seats.iter().map(Seat::participant).collect();
    let (spec, suite) = (super::report::SPEC.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    Ok(Matrix { spec, suite, parties, recipes: recipes.len(), cells })
}

impl Matrix {
    /// Whether all content came through, skipped recipes apart.
    #[must_use]
    pub fn is_fine(&self) -> bool {
        self.cells.iter().all(|cell| cell.different.is_empty() && cell.same > 0)
    }

    /// A table with a row for each writer, and what did not come through.
    #[must_use]
    pub fn text(&self) -> String {
        let (mut out, width) = (String::new(), self.width());
        let _ = write!(out, "{:width$}", "wrote \\ read");
        let readers = self.readers();
        for reader in &readers {
            let _ = write!(out, "  {reader:>width$}");
        }
        out.push('\n');
        for row in self.cells.chunks(readers.len().max(1)) {
            let _ = write!(out, "{:width$}", row.first().map_or("", |cell| &cell.writer));
            for cell in row {
                let _ = write!(out, "  {:>width$}", cell.word());
            }
            out.push('\n');
        }
        for cell in &self.cells {
            for Difference { case, why } in &cell.different {
                let _ = writeln!(out, "\n{case}: {} wrote, {} read", cell.writer, cell.reader);
                for why in why {
                    let _ = writeln!(out, "        {why}");
                }
            }
        }
        out
    }

    /// The table in Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        let readers = self.readers();
        let mut out = format!(
            "| wrote \\ read | {} |\n|---|{}\n",
            readers.iter().map(|name| plain(name)).collect::<Vec<_>>().join(" | "),
            "--:|".repeat(readers.len())
        );
        for row in self.cells.chunks(readers.len().max(1)) {
            let words: Vec<String> = row.iter().map(Cell::word).collect();
            let writer = row.first().map_or("", |cell| &cell.writer);
            let _ = writeln!(out, "| {} | {} |", plain(writer), words.join(" | "));
        }
        out
    }

    fn readers(&self) -> Vec<&str> {
        let reads = self.parties.iter().filter(|party| party.reads);
        reads.map(|party| party.name.as_str()).collect()
    }

    fn width(&self) -> usize {
        self.parties
            .iter()
            .map(|party| party.name.len())
            .max()
            .unwrap_or(0)
            .max("wrote \\ read".len())
    }
}

impl Cell {
    fn word(&self) -> String {
        let done = self.same.saturating_add(self.different.len());
        let skipped =
            if self.skipped > 0 { format!(" ({} skipped)", self.skipped) } else { String::new() };
        format!("{}/{done}{skipped}", self.same)
    }

    fn count(&mut self, case: &Case, came: Came) {
        match came {
            Came::Through => self.same = self.same.saturating_add(1),
            Came::NotDone => self.skipped = self.skipped.saturating_add(1),
            Came::Otherwise(why) => {
                self.different.push(Difference { case: case.expect.id.clone(), why });
            }
        }
    }
}

/// What became of a recipe.
#[derive(Clone)]
enum Came {
    Through,
    NotDone,
    Otherwise(Vec<String>),
}

/// A party and its adapter, which is started again after a crash.
struct Seat<'p> {
    party: &'p Party,
    limits: Limits,
    stop: &'p Stop,
    profiles: Vec<Profile>,
    implementation: Implementation,
    adapter: Option<Adapter>,
}

impl<'p> Seat<'p> {
    fn new(party: &'p Party, limits: Limits, stop: &'p Stop) -> Result<Self> {
        let adapter = Adapter::start(&party.command, limits, stop)?;
        let hello = adapter.hello().clone();
        let (profiles, implementation) = (hello.profiles, hello.implementation);
        Ok(Self { party, limits, stop, profiles, implementation, adapter: Some(adapter) })
    }

    fn claims(&self, profile: Profile) -> bool {
        self.profiles.contains(&profile)
    }

    fn participant(&self) -> Participant {
        Participant {
            name: self.party.name.clone(),
            implementation: self.implementation.clone(),
            writes: self.claims(Profile::Writer),
            reads: self.claims(Profile::Core),
        }
    }

    fn write(&mut self, case: &Case, out: &Path) -> Came {
        let mut members = case.expect.request.clone();
        members.insert("out".to_owned(), json!(out));
        match self.ask("write", members) {
            Ok(Answer::Ok(_)) if fs::symlink_metadata(out).is_ok() => Came::Through,
            Ok(Answer::Ok(_)) => Came::Otherwise(vec!["it wrote nothing".to_owned()]),
            Ok(Answer::Skip { .. }) => Came::NotDone,
            Ok(refused) => Came::Otherwise(vec![format!("writing: {}", refused.brief())]),
            Err(why) => Came::Otherwise(vec![format!("writing: {why}")]),
        }
    }

    fn read(&mut self, case: &Case, out: &Path) -> Came {
        match self.ask("read", Map::from_iter([("path".to_owned(), json!(out))])) {
            Ok(Answer::Ok(ok)) => match differences(wrote::expected(case), &Value::Object(ok)) {
                none if none.is_empty() => Came::Through,
                some => Came::Otherwise(some),
            },
            Ok(Answer::Skip { .. }) => Came::NotDone,
            Ok(refused) => Came::Otherwise(vec![format!("reading: {}", refused.brief())]),
            Err(why) => Came::Otherwise(vec![format!("reading: {why}")]),
        }
    }

    fn ask(&mut self, op: &str, members: Map<String, Value>) -> Result<Answer, String> {
        let mut adapter = match self.adapter.take() {
            Some(adapter) => adapter,
            None => Adapter::start(&self.party.command, self.limits, self.stop)
                .map_err(|e| e.to_string())?,
        };
        let answer = adapter.ask(op, members);
        // What crashed is not asked again.
        self.adapter = answer.is_ok().then_some(adapter);
        answer.map(|(answer, _)| answer).map_err(|crash: Crash| crash.to_string())
    }
}
