//! How often which code was the answer, for which kind of file; and where something went wrong.

use std::collections::{BTreeMap, BTreeSet};

use waystation_format::Error;

/// Failures that are told in full; of the rest the number.
const TOLD: usize = 20;

/// What a sweep, or a thread of it, has seen.
#[derive(Default)]
pub struct Tally {
    /// By what was damaged: the cases, and by code how many of them answered it.
    rows: BTreeMap<String, (u64, BTreeMap<String, u64>)>,
    failures: Vec<String>,
}

impl Tally {
    /// Counts a case and the codes among its findings, each once.
    pub fn count(&mut self, label: String, findings: &[Error]) {
        let (cases, codes) = self.rows.entry(label).or_default();
        *cases += 1;
        let found: BTreeSet<&str> = findings.iter().map(|e| e.code().as_str()).collect();
        for code in found {
            *codes.entry(code.to_owned()).or_default() += 1;
        }
    }

    pub fn fail(&mut self, what: String) {
        self.failures.push(what);
    }

    pub fn cases(&self) -> u64 {
        self.rows.values().map(|(cases, _)| cases).sum()
    }

    pub fn add(&mut self, other: Self) {
        for (label, (more, codes)) in other.rows {
            let (cases, sums) = self.rows.entry(label).or_default();
            *cases += more;
            for (code, more) in codes {
                *sums.entry(code).or_default() += more;
            }
        }
        self.failures.extend(other.failures);
    }

    /// The table, one line for each kind of file.
    pub fn print(&self, title: &str) {
        let mut text = format!("\n{title}: {} cases\n", self.cases());
        for (label, (cases, codes)) in &self.rows {
            let mut codes: Vec<(&String, &u64)> = codes.iter().collect();
            codes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let codes: Vec<String> =
                codes.iter().map(|(code, count)| format!("{code} {count}")).collect();
            text += &format!("  {label:<28} {cases:>7}  {}\n", codes.join(", "));
        }
        println!("{text}");
    }

    /// # Panics
    /// When something went wrong, with what and where.
    pub fn check(&self) {
        let told: Vec<&str> = self.failures.iter().take(TOLD).map(String::as_str).collect();
        assert!(
            told.is_empty(),
            "{} failures in {} cases:\n{}",
            self.failures.len(),
            self.cases(),
            told.join("\n")
        );
    }
}
