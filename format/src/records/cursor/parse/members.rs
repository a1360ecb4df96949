//! The members of a node, among which those of the root stand where their names sort.
//!
//! It knows which members only the root has. It must not know any kind of node.

use super::{FORM, Root};
use crate::Result;
use crate::json::Value;
use crate::records::read::Members;

/// Asked for in ascending order of names, as [`Members`].
pub(super) struct NodeMembers<'v, 'r, 't> {
    members: Members<'v>,
    /// At the root, what its own members say.
    root: Option<&'r mut Root<'t>>,
    opaque: bool,
    /// How many of the root's own are asked for.
    asked: usize,
}

impl<'v, 'r, 't> NodeMembers<'v, 'r, 't> {
    pub(super) fn new(
        value: &'v Value,
        opaque: bool,
        root: Option<&'r mut Root<'t>>,
    ) -> Result<Self> {
        Ok(Self { members: FORM.object(value)?, root, opaque, asked: 0 })
    }

    pub(super) fn required<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'v Value) -> Result<T>,
    ) -> Result<T> {
        self.root_before(Some(name))?;
        self.members.required(name, read)
    }

    pub(super) fn optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'v Value) -> Result<T>,
    ) -> Result<Option<T>> {
        self.root_before(Some(name))?;
        self.members.optional(name, read)
    }

    /// Behind the last member.
    pub(super) fn end(mut self) -> Result<()> {
        self.root_before(None)?;
        self.members.end()
    }

    /// Without a look at the root's own.
    pub(super) fn plain_optional<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'v Value) -> Result<T>,
    ) -> Result<Option<T>> {
        self.members.optional(name, read)
    }

    /// Without a look at the root's own.
    pub(super) fn plain_required<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&'v Value) -> Result<T>,
    ) -> Result<T> {
        self.members.required(name, read)
    }

    /// Reads those of the root's own that sort before `name`, or all.
    fn root_before(&mut self, name: Option<&str>) -> Result<()> {
        let Some(root) = self.root.take() else { return Ok(()) };
        while let Some(own) = Root::NAMES.get(self.asked)
            && name.is_none_or(|name| *own < name)
        {
            self.asked = self.asked.saturating_add(1);
            root.read(own, self.opaque, self)?;
        }
        self.root = Some(root);
        Ok(())
    }
}
