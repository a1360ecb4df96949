//! `--topology dp=3,tp=2`, `--place dp=2,tp=0` and `--source NAME=RECORDS:SHA256`. Knows text, not
//! checkpoints.

use waystation_format::{Code, Coordinate, Digest, Error, Result, Topology};
use waystation_reader::restore::Place;

/// The place of these two texts.
///
/// # Errors
/// [`Code::BadArgument`] for text of another form, or a place that is not one of the topology's.
pub(crate) fn place(topology: &str, coordinate: &str) -> Result<Place> {
    Place::new(Topology(axes("--topology", topology)?), axes("--place", coordinate)?)
}

/// `axis=number` items, joined by commas.
fn axes(flag: &str, text: &str) -> Result<Coordinate> {
    let items = text.split(',').filter(|item| !item.is_empty());
    items
        .map(|item| {
            let parsed = item
                .rsplit_once('=')
                .and_then(|(axis, number)| Some((axis.to_owned(), number.parse().ok()?)));
            parsed.ok_or_else(|| {
                let message = format!("{flag} item {item:?}: expected axis=number");
                Error::new(Code::BadArgument, message)
            })
        })
        .collect()
}

/// The cursor's name, the records and the digest of a source.
///
/// # Errors
/// [`Code::BadArgument`] for text of another form.
pub(crate) fn source(text: &str) -> Result<(String, u64, Digest)> {
    let parsed = text.rsplit_once('=').and_then(|(name, source)| {
        let (records, sha256) = source.split_once(':')?;
        Some((name.to_owned(), records.parse().ok()?, Digest::from_hex(sha256)?))
    });
    parsed.ok_or_else(|| {
        let message = format!("--source {text:?}: expected CURSOR=RECORDS:SHA256");
        Error::new(Code::BadArgument, message)
    })
}

/// The text of a source, which [`source`] reads.
pub(crate) fn source_text(cursor: &str, records: u64, sha256: Digest) -> String {
    format!("{cursor}={records}:{sha256}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_sources_are_read_or_refused() {
        let at = place("dp=3,tp=2", "dp=2,tp=0").unwrap();
        assert_eq!(at.coordinate(), &[("dp".to_owned(), 2), ("tp".to_owned(), 0)]);
        assert!(place("", "").is_ok());
        for (topology, at) in [("dp", "dp=0"), ("dp=2", "dp=2"), ("dp=2", ""), ("dp=x", "dp=0")] {
            assert_eq!(
                place(topology, at).unwrap_err().code(),
                Code::BadArgument,
                "{topology} {at}"
            );
        }
        let digest = "ab".repeat(32);
        let (name, records, sha256) = source(&format!("a=b=12:{digest}")).unwrap();
        assert_eq!(source_text(&name, records, sha256), format!("a=b=12:{digest}"));
        assert_eq!((name.as_str(), records, sha256.to_string()), ("a=b", 12, digest));
        for text in ["train", "train=12", "train=12:ab", "train=x:ab"] {
            assert_eq!(source(text).unwrap_err().code(), Code::BadArgument, "{text}");
        }
    }
}
