//! What identifies a tensor, and the form of names.
//!
//! It knows the six things of chapter 4, their key and the registry's demands on them. It must
//! not know shapes, chunks or files.

pub(crate) use crate::common::encode_coordinate;
use crate::common::{Coordinate, Topology, parse_coordinate, read_name};
use crate::json::{Cursor, Encoder, check_canonical_value, pointer_at};
use crate::{Code, Error, Presence, Result, Role, limits, rule};

/// The component that is meant where none is named.
pub const MAIN: &str = "main";

/// A tensor's identity. Its order is that of [`key`](Self::key), not of the fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// A model of the job, usually [`MAIN`].
    pub component: String,
    /// What the tensor is.
    pub role: Role,
    /// The parameter's or buffer's own name.
    pub name: String,
    /// What it is for that parameter; empty when it is the parameter itself.
    pub slot: String,
    /// The record of kind `optimizer` or `ema` that it belongs to; empty for none.
    pub owner: String,
    /// Where in the topology it lies, for tensors that differ between ranks; empty for none.
    pub scope: Coordinate,
}

impl Identity {
    /// The param `name` of the main component.
    #[must_use]
    pub fn param(name: impl Into<String>) -> Self {
        Self::model(Role::Param, name)
    }

    /// The buffer `name` of the main component.
    #[must_use]
    pub fn buffer(name: impl Into<String>) -> Self {
        Self::model(Role::Buffer, name)
    }

    /// What the optimizer `owner` keeps for the param `name` of the main component: `adam.m` and the
    /// other slots of the registry, or `vendor/name`.
    #[must_use]
    pub fn optimizer(
        name: impl Into<String>,
        slot: impl Into<String>,
        owner: impl Into<String>,
    ) -> Self {
        let identity = Self::model(Role::Optimizer, name);
        Self { slot: slot.into(), owner: owner.into(), ..identity }
    }

    fn model(role: Role, name: impl Into<String>) -> Self {
        Self {
            component: MAIN.to_owned(),
            role,
            name: name.into(),
            slot: String::new(),
            owner: String::new(),
            scope: Vec::new(),
        }
    }

    /// The identity key: canonical JSON `[component, role, name, slot, owner, scope]`.
    #[must_use]
    pub fn key(&self) -> String {
        // Enough for all but long scopes and names that need escapes.
        let names = [&self.component, &self.name, &self.slot, &self.owner];
        let room = names.iter().fold(64_usize, |sum, name| sum.saturating_add(name.len()));
        let mut json = Encoder::with_capacity(room);
        self.encode(&mut json);
        json.into_string()
    }

    /// Reads an identity key. That its scope lies in the topology is for [`check`](Self::check).
    ///
    /// # Errors
    /// [`Code::NotCanonical`] or [`Code::BadMember`] when it is none, [`Code::UnsupportedRole`],
    /// [`Code::BadName`], and [`Code::BadIdentity`] for a slot or owner that does not go with the
    /// role.
    pub fn parse_key(key: &str) -> Result<Self> {
        Self::read(&mut Cursor::new(check_canonical_value(key.as_bytes())?))
    }

    /// Reads an identity key in a canonical text.
    pub(crate) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        const FORM: &str = "[component, role, name, slot, owner, scope]";
        let start = cursor.offset();
        let mut items = cursor.begin_array()?;
        cursor.want_item(&mut items, FORM)?;
        let component = read_name(cursor, "component")?;
        cursor.want_item(&mut items, FORM)?;
        let role = read_role(cursor)?;
        cursor.want_item(&mut items, FORM)?;
        let name = read_name(cursor, "tensor name")?;
        cursor.want_item(&mut items, FORM)?;
        let slot = read_optional_name(cursor, "slot")?;
        cursor.want_item(&mut items, FORM)?;
        let owner = read_optional_name(cursor, "owner")?;
        cursor.want_item(&mut items, FORM)?;
        let scope = parse_coordinate(cursor)?;
        cursor.end_array(&mut items, FORM)?;
        let identity = Self { component, role, name, slot, owner, scope };
        identity
            .check_presence()
            .map_err(|error| error.at_pointer(pointer_at(cursor.text(), start)))?;
        Ok(identity)
    }

    /// Writes the identity key.
    pub(crate) fn encode(&self, json: &mut Encoder) {
        json.begin_array();
        json.string(&self.component);
        json.string(self.role.as_str());
        json.string(&self.name);
        json.string(&self.slot);
        json.string(&self.owner);
        encode_coordinate(json, &self.scope);
        json.end_array();
    }

    /// Checks all rules of an identity.
    ///
    /// # Errors
    /// [`Code::BadName`]; [`Code::BadIdentity`] for a slot, owner or scope that does not go with
    /// the role or the topology.
    pub fn check(&self, topology: &Topology) -> Result<()> {
        check_name(&self.component, "component").map_err(|error| error.at_pointer("/component"))?;
        check_name(&self.name, "tensor name").map_err(|error| error.at_pointer("/name"))?;
        if !self.slot.is_empty() {
            check_name(&self.slot, "slot").map_err(|error| error.at_pointer("/slot"))?;
        }
        if !self.owner.is_empty() {
            check_name(&self.owner, "owner").map_err(|error| error.at_pointer("/owner"))?;
        }
        self.check_presence()?;
        topology
            .check_coordinate(&self.scope, rule::IDENTITY_SCOPE)
            .map_err(|error| error.at_pointer("/scope"))
    }

    fn check_presence(&self) -> Result<()> {
        for (what, value, presence, rule) in [
            ("slot", &self.slot, self.role.slot(), rule::IDENTITY_SLOT),
            ("owner", &self.owner, self.role.owner(), rule::IDENTITY_OWNER),
        ] {
            let (wanted, found) = match (presence, value.is_empty()) {
                (Presence::Required, true) => ("a", "none".to_owned()),
                (Presence::Forbidden, false) => ("no", format!("{value:?}")),
                _ => continue,
            };
            let message = format!("expected {wanted} {what} for role {}, found {found}", self.role);
            return Err(Error::rule(Code::BadIdentity, rule, message));
        }
        Ok(())
    }
}

/// Checks a name of the kind that `what` says.
///
/// # Errors
/// [`Code::BadName`] when it is empty, too long, or has a control or bidirectional character.
pub fn check_name(name: &str, what: &str) -> Result<()> {
    let bytes = u64::try_from(name.len()).unwrap_or(u64::MAX);
    if !(1..=limits::NAME_BYTES).contains(&bytes) {
        let message =
            format!("expected a {what} of 1 to {} bytes, found {bytes}", limits::NAME_BYTES);
        return Err(Error::rule(Code::BadName, rule::IDENTITY_NAME, message));
    }
    if name.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) {
        return Ok(()); // most are, and this is quicker than characters
    }
    match name.chars().find(|char| is_forbidden(*char)) {
        None => Ok(()),
        Some(char) => {
            let message = format!(
                "expected a {what} without control or bidirectional characters, found U+{:04X}",
                u32::from(char)
            );
            Err(Error::rule(Code::BadName, rule::IDENTITY_NAME, message))
        }
    }
}

fn is_forbidden(char: char) -> bool {
    matches!(
        char,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

/// Reads a role of the registry.
pub(crate) fn read_role(cursor: &mut Cursor<'_>) -> Result<Role> {
    let start = cursor.offset();
    let id = cursor.string()?;
    Role::from_id(&id).ok_or_else(|| {
        let message = format!("expected a registered role, found {id:?}");
        cursor.fail(start, Code::UnsupportedRole, rule::IDENTITY_ROLE, message)
    })
}

fn read_optional_name(cursor: &mut Cursor<'_>, what: &str) -> Result<String> {
    let start = cursor.offset();
    let name = cursor.string()?;
    if name.is_empty() {
        return Ok(String::new());
    }
    match check_name(&name, what) {
        Ok(()) => Ok(name.into_owned()),
        Err(error) => Err(error.at_pointer(pointer_at(cursor.text(), start))),
    }
}
