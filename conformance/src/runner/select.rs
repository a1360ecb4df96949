//! Which cases are run: profiles, and ids as patterns.

use std::fmt;

use crate::case::{Case, Profile};

/// What to run of a suite; empty lists choose everything.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Only these profiles.
    pub profiles: Vec<Profile>,
    /// Only cases whose ids one of these patterns matches.
    pub cases: Vec<String>,
}

impl Selection {
    /// Whether the case is chosen.
    #[must_use]
    pub fn chooses(&self, case: &Case) -> bool {
        let profile = self.profiles.is_empty() || self.profiles.contains(&case.expect.profile);
        let named = || self.cases.iter().any(|pattern| matches(pattern, &case.expect.id));
        profile && (self.cases.is_empty() || named())
    }
}

impl fmt::Display for Selection {
    /// What to say of it where it chooses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let profiles: Vec<String> = self.profiles.iter().map(ToString::to_string).collect();
        match (self.cases.is_empty(), profiles.is_empty()) {
            (true, true) => write!(f, "a suite without cases"),
            (true, false) => write!(f, "no case of profile {}", profiles.join(", ")),
            (false, anywhere) => {
                write!(f, "no case whose id matches {}", self.cases.join(", "))?;
                if !anywhere {
                    write!(f, " in profile {}", profiles.join(", "))?;
                }
                write!(f, "; `list` shows all ids, and `*` stands for no solidus")
            }
        }
    }
}

/// Whether `pattern` matches all of `id`: `*` stands for any characters but `/`, `**` for any, `?` for one but `/`.
#[must_use]
pub fn matches(pattern: &str, id: &str) -> bool {
    fn rest(pattern: &[u8], id: &[u8]) -> bool {
        match pattern {
            [] => id.is_empty(),
            [b'*', b'*', more @ ..] => {
                (0..=id.len()).any(|skip| id.get(skip..).is_some_and(|id| rest(more, id)))
            }
            [b'*', more @ ..] => {
                let most = id.iter().position(|b| *b == b'/').unwrap_or(id.len());
                (0..=most).any(|skip| id.get(skip..).is_some_and(|id| rest(more, id)))
            }
            [b'?', more @ ..] => {
                id.split_first().is_some_and(|(b, id)| *b != b'/' && rest(more, id))
            }
            [byte, more @ ..] => {
                id.split_first().is_some_and(|(b, id)| b == byte && rest(more, id))
            }
        }
    }
    rest(pattern.as_bytes(), id.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, id, yes) in [
            ("core/a", "core/a", true),
            ("core/a", "core/ab", false),
            ("core/*", "core/ab", true),
            ("*", "core/ab", false),
            ("**", "core/ab", true),
            ("**b", "core/ab", true),
            ("core/*-x-*", "core/shard-x-", true),
            ("core/a?", "core/ab", true),
            ("core?a", "core/a", false),
        ] {
            assert_eq!(matches(pattern, id), yes, "{pattern} {id}");
        }
    }
}
