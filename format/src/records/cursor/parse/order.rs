//! Orders out of JSON.
//!
//! It knows the parameters of each. Whether they fit the source is for the node that has it.

use super::FORM;
use crate::json::{Map, Value};
use crate::records::cursor::{Numbers, Order, SeedRule};
use crate::records::read::{Members, Reader, missing};
use crate::{OrderAlgorithm, Result, limits, rule};

const ORDER: Reader = Reader::new(rule::ORDER_FORM);

/// An order, and n.
pub(super) fn sized(value: &Value) -> Result<(Order, u64)> {
    let mut n = 0;
    let order = read(value, |members| {
        n = members.required("n", size)?;
        Ok(())
    })?;
    Ok((order, n))
}

impl Order {
    /// Reads an order that stands for itself, as it stands in a cursor; `n` where it is said.
    ///
    /// # Errors
    ///
    /// [`Code::BadMember`](crate::Code::BadMember) for another form, with the pointer from its top.
    pub fn parse(value: &Value) -> Result<(Self, Option<u64>)> {
        let mut n = None;
        let order = read(value, |members| {
            n = members.optional("n", size)?;
            Ok(())
        })?;
        Ok((order, n))
    }
}

/// An order of a window: without n, and not one that stands in the record.
pub(super) fn of_window(value: &Value) -> Result<Order> {
    let order = read(value, |_| Ok(()))?;
    if matches!(order, Order::Explicit(_)) {
        let message = "expected an order of any number of items in a window, found \"explicit\"";
        return Err(ORDER.bad(message).in_member("algorithm"));
    }
    Ok(order)
}

/// A size: a count of at least 1.
pub(super) fn size(value: &Value) -> Result<u64> {
    match FORM.count(value)? {
        0 => Err(FORM.bad("expected a size of at least 1, found 0")),
        size => Ok(size),
    }
}

/// A list of at most `inline-ordinals`, or a tensor.
pub(super) fn numbers(
    value: &Value,
    list: impl FnOnce(&Value) -> Result<Vec<u64>>,
    reader: Reader,
) -> Result<Numbers> {
    match value {
        Value::Object(_) => Ok(Numbers::Tensor(Box::new(reader.tensor(value)?))),
        Value::List(_) => Ok(Numbers::List(list(value)?)),
        _ => Err(reader.bad_type("a list or a tensor", value)),
    }
}

/// `n` is asked for where its name sorts: after `algorithm`, before all parameters.
fn read(value: &Value, n: impl FnOnce(&mut Members<'_>) -> Result<()>) -> Result<Order> {
    let object = value.as_object().ok_or_else(|| ORDER.bad_type("an object", value))?;
    let named = object.get("algorithm");
    let known = named.and_then(|value| match value {
        Value::Str(id) => OrderAlgorithm::from_id(id).filter(|known| known.is_computed()),
        _ => None,
    });
    let Some(known) = known else { return other(object, n) };
    let mut members = ORDER.object(value)?;
    members.required("algorithm", |_| Ok(()))?;
    n(&mut members)?;
    let order = match known {
        OrderAlgorithm::Explicit => Order::Explicit(members.required("ordinals", |value| {
            let list = |value: &Value| {
                ORDER.list_limited(value, limits::INLINE_ORDINALS, |_, v| ORDER.count(v))
            };
            numbers(value, list, ORDER)
        })?),
        OrderAlgorithm::TorchRandpermCpu => {
            let seed = members.required("seed", |value| seed(value, u64::MAX))?;
            Order::TorchRandpermCpu { seed, seed_rule: members.required("seed_rule", seed_rule)? }
        }
        OrderAlgorithm::GrainIndexShuffle => {
            let rounds = members.required("rounds", rounds)?;
            let seed = members.required("seed", |value| seed(value, u64::from(u32::MAX)))?;
            Order::GrainIndexShuffle {
                seed: u32::try_from(seed).unwrap_or(u32::MAX),
                seed_rule: members.required("seed_rule", seed_rule)?,
                rounds,
            }
        }
        _ => Order::Identity,
    };
    members.end()?;
    Ok(order)
}

/// An order of another algorithm: any members besides.
fn other(object: &Map, n: impl FnOnce(&mut Members<'_>) -> Result<()>) -> Result<Order> {
    let algorithm = match object.get("algorithm") {
        Some(value) => ORDER.name(value, "order").map_err(|error| error.in_member("algorithm"))?,
        None => return Err(missing("algorithm")),
    };
    let mut rest = object.clone();
    rest.remove("algorithm");
    // Asked of an object of nothing else, so that its own rules hold and no other's.
    let alone: Map = rest.remove("n").map(|n| ("n".to_owned(), n)).into_iter().collect();
    let alone = Value::Object(alone);
    let mut members = ORDER.object(&alone)?;
    n(&mut members)?;
    members.end()?;
    Ok(Order::Other { algorithm, members: rest })
}

fn seed(value: &Value, most: u64) -> Result<u64> {
    let integer = ORDER.integer(value)?;
    integer
        .to_u64()
        .filter(|seed| *seed <= most)
        .ok_or_else(|| ORDER.bad(format!("expected a seed from 0 to {most}, found another")))
}

/// Two rounds are one exchange of halves, and fewer than four do not mix.
fn rounds(value: &Value) -> Result<u64> {
    match ORDER.count(value)? {
        rounds if (4..=1024).contains(&rounds) && rounds.is_multiple_of(2) => Ok(rounds),
        rounds => {
            let message = "expected an even number of rounds from 4 to 1024";
            Err(ORDER.bad(format!("{message}, found {rounds}")))
        }
    }
}

fn seed_rule(value: &Value) -> Result<SeedRule> {
    ORDER.word(value, "\"seed\" or \"seed+epoch\"", |word| {
        Some(match word {
            "seed" => SeedRule::Seed,
            "seed+epoch" => SeedRule::SeedPlusEpoch,
            _ => return None,
        })
    })
}
