//! The registry's tables inside the chapters, between `<!-- gen:name -->` and `<!-- /gen -->`.

use crate::Result;
use crate::registry::{HeaderForm, Registry, Status};
use crate::spec::Rule;

const OPEN: &str = "<!-- gen:";
const CLOSE: &str = "<!-- /gen -->";

/// `text` with every marked table made anew.
///
/// # Errors
/// A marker without end, or a table that does not exist.
pub(crate) fn fill(text: &str, registry: &Registry, rules: &[Rule]) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        let (name, after) = after.split_once(" -->").ok_or("a gen marker is not closed")?;
        let (_, after) =
            after.split_once(CLOSE).ok_or_else(|| format!("gen:{name} has no {CLOSE}"))?;
        let table = table(name, registry, rules).ok_or_else(|| format!("no table {name}"))?;
        out += &format!("{before}{OPEN}{name} -->\n{table}{CLOSE}");
        rest = after;
    }
    out += rest;
    Ok(out)
}

fn table(name: &str, registry: &Registry, rules: &[Rule]) -> Option<String> {
    Some(match name {
        "codes" => rows(
            &["code", "class", "meaning"],
            registry.codes.iter().map(|c| [code(&c.id), c.class.clone(), c.meaning.clone()]),
        ),
        "classes" => rows(
            &["class", "meaning", "exit"],
            registry.classes.iter().map(|c| [code(&c.id), c.meaning.clone(), c.exit.to_string()]),
        ),
        "dtypes" => rows(
            &[
                "dtype",
                "bits",
                "in a shard's header",
                "one element",
                "NumPy, ml_dtypes",
                "PyTorch",
                "DLPack code",
            ],
            registry.dtypes.iter().map(|d| {
                let header = match d.header {
                    HeaderForm::Own => code(&d.id),
                    HeaderForm::Bytes => "`U8`".to_owned(),
                };
                let called =
                    |name: Option<&String>| name.map_or_else(String::new, |name| code(name));
                [
                    code(&d.id),
                    d.bits.to_string(),
                    header,
                    d.elements.clone(),
                    called(d.numpy.as_ref().or(d.ml_dtypes.as_ref())),
                    called(d.torch.as_ref()),
                    d.dlpack.to_string(),
                ]
            }),
        ),
        "limits" => rows(
            &["limit", "value", "unit", "meaning"],
            registry
                .limits
                .iter()
                .map(|l| [code(&l.id), l.value.to_string(), l.unit.clone(), l.meaning.clone()]),
        ),
        "roles" => rows(
            &["role", "shard", "slot", "owner", "meaning"],
            registry.roles.iter().map(|r| {
                let word = |word: String| word.to_lowercase();
                [
                    code(&r.id),
                    word(format!("{:?}", r.class)),
                    word(format!("{:?}", r.slot)),
                    word(format!("{:?}", r.owner)),
                    r.meaning.clone(),
                ]
            }),
        ),
        "slots" => rows(
            &["slot", "role", "PyTorch", "Optax", "meaning"],
            registry.slots.iter().map(|s| {
                let alias = |alias: &Option<String>| alias.as_deref().map(code).unwrap_or_default();
                [code(&s.id), code(&s.role), alias(&s.torch), alias(&s.optax), s.meaning.clone()]
            }),
        ),
        "features" => rows(
            &["feature", "status", "meaning"],
            registry.features.iter().map(|f| {
                let status = match f.status {
                    Status::Reserved => "reserved",
                    Status::Active => "active",
                };
                [code(&f.id), status.to_owned(), f.meaning.clone()]
            }),
        ),
        "record-kinds" => rows(
            &["kind", "meaning"],
            registry.kinds.iter().map(|k| [code(&k.id), k.meaning.clone()]),
        ),
        "rng-algorithms" => rows(
            &["algorithm", "bytes", "state, in order", "legal", "output", "is"],
            registry.algorithms.iter().map(|a| {
                let legal = if a.legal.is_empty() { "every state" } else { &a.legal };
                let output = if a.canary { format!("u{}", a.width) } else { "—".to_owned() };
                [
                    code(&a.id),
                    a.bytes.to_string(),
                    a.layout.clone(),
                    legal.to_owned(),
                    output,
                    a.meaning.clone(),
                ]
            }),
        ),
        "rng-caches" => rows(
            &["cache", "bits", "is"],
            registry.caches.iter().map(|c| [code(&c.id), c.bits.to_string(), c.meaning.clone()]),
        ),
        "orders" => rows(
            &["order", "computed", "parameters", "is"],
            registry.orders.iter().map(|o| {
                let computed = if o.computed { "yes" } else { "no" };
                [code(&o.id), computed.to_owned(), o.parameters.clone(), o.meaning.clone()]
            }),
        ),
        "schedules" => rows(
            &["schedule", "parameters", "value at position p"],
            registry
                .schedules
                .iter()
                .map(|s| [code(&s.id), s.parameters.clone(), s.meaning.clone()]),
        ),
        "grades" => rows(
            &["grade", "means"],
            registry.grades.iter().map(|g| [code(&g.id), g.meaning.clone()]),
        ),
        "crash-points" => rows(
            &["window", "from", "to", "`latest`", "what repairs it"],
            registry.windows.iter().map(|w| {
                let latest: Vec<String> =
                    w.latest.iter().map(|answer| format!("{answer:?}").to_lowercase()).collect();
                let repairs = [repairs(&w.repairs), w.note.clone()];
                let repairs = repairs.into_iter().filter(|text| !text.is_empty());
                [
                    w.id.clone(),
                    w.from.clone(),
                    w.to.clone(),
                    latest.join(" or "),
                    repairs.collect::<Vec<_>>().join("; "),
                ]
            }),
        ),
        "rules" => rows(
            &["rule", "who", "depth", "codes", "chapter"],
            rules.iter().map(|r| {
                let depth = if r.depth.is_empty() { "—" } else { &r.depth };
                let codes: Vec<String> = r.codes.iter().map(|c| code(c)).collect();
                let codes = if codes.is_empty() { "—".to_owned() } else { codes.join(", ") };
                let link = format!("[{}]({})", r.chapter.trim_end_matches(".md"), r.chapter);
                [code(&r.id), r.actor.clone(), depth.to_owned(), codes, link]
            }),
        ),
        _ => return None,
    })
}

fn rows<const N: usize>(head: &[&str; N], body: impl Iterator<Item = [String; N]>) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(N));
    for row in body {
        // A bar would end the cell.
        out += &format!("| {} |\n", row.map(|cell| cell.replace('|', "\\|")).join(" | "));
    }
    out
}

/// Any of these.
fn repairs(all: &[String]) -> String {
    match all {
        [] => "nothing".to_owned(),
        [one] => code(one),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|id| code(id)).collect();
            format!("{}, or {}", first.join(", "), code(last))
        }
    }
}

fn code(id: &str) -> String {
    format!("`{id}`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Kind;

    fn registry() -> Registry {
        Registry {
            classes: vec![],
            codes: vec![],
            dtypes: vec![],
            limits: vec![],
            roles: vec![],
            slots: vec![],
            features: vec![],
            kinds: vec![Kind { id: "ema".into(), meaning: "a | b".into() }],
            algorithms: vec![],
            caches: vec![],
            orders: vec![],
            schedules: vec![],
            grades: vec![],
            windows: vec![],
        }
    }

    #[test]
    fn what_stood_between_the_markers_is_replaced() {
        let text = "a\n<!-- gen:record-kinds -->\nold\n<!-- /gen -->\nb";
        let filled = fill(text, &registry(), &[]).unwrap();
        assert_eq!(
            filled,
            "a\n<!-- gen:record-kinds -->\n| kind | meaning |\n|---|---|\n| `ema` | a \\| b |\n\
             <!-- /gen -->\nb"
        );
        assert_eq!(fill(&filled, &registry(), &[]).unwrap(), filled);
    }

    #[test]
    fn unknown_tables_and_open_ends_are_errors() {
        assert!(fill("<!-- gen:none --><!-- /gen -->", &registry(), &[]).is_err());
        assert!(fill("<!-- gen:rules -->", &registry(), &[]).is_err());
    }
}
