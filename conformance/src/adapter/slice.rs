//! One region of a tensor, or of what an alias names.

use serde_json::{Map, Value, json};
use waystation_format::{Code, Error, Identity, Region, Result, rule};

use super::read::{PIECE_BYTES, Packed, open};
use super::request::{exact, numbers};
use super::{Request, bad_argument};

pub(super) fn answer(request: &Request) -> Result<Value> {
    let path = request.path("path")?;
    let identity = identity(request.member("tensor"))?;
    let region = |name| {
        numbers(request.member(name))
            .ok_or_else(|| bad_argument(format!("expected a list of integers as {name:?}")))
    };
    let (start, extent) = (region("start")?, region("extent")?);
    let checkpoint = open(&path)?;
    let tensor = checkpoint.tensor(&identity)?;
    let region = boxed(&start, &extent)?;
    let mut packed = Packed::default();
    tensor.stream_region(&region, PIECE_BYTES, &mut |bytes| {
        packed.take(bytes);
        Ok(())
    })?;
    let mut said = Map::new();
    said.insert("dtype".to_owned(), json!(tensor.entry().dtype.as_str()));
    said.insert("extent".to_owned(), json!(extent));
    packed.say(&mut said);
    Ok(Value::Object(said))
}

fn identity(value: &Value) -> Result<Identity> {
    let refused = |e: Error| bad_argument(format!("expected an identity: {}", e.message()));
    exact(value)?.encode().and_then(|key| Identity::parse_key(&key)).map_err(refused)
}

/// A region, if its numbers can be of one.
fn boxed(start: &[i64], extent: &[i64]) -> Result<Region> {
    let natural = |numbers: &[i64]| {
        numbers.iter().map(|n| u64::try_from(*n).ok()).collect::<Option<Vec<u64>>>()
    };
    match (natural(start), natural(extent)) {
        (Some(at), Some(extent)) if at.len() == extent.len() => Ok(Region::new(&at, &extent)),
        _ => {
            let message =
                format!("expected a region of the tensor, found {start:?} and {extent:?}");
            Err(Error::rule(Code::BadRegion, rule::READ_REGION, message))
        }
    }
}
