//! Tensors, their chunks, and aliases: what the entries of parts and pages say.
//!
//! It knows the members of an entry and the rules that one entry can break by itself. It must not
//! know other entries, files, or the bytes of a shard.

use crate::arith;
use crate::common::{Coordinate, Topology};
use crate::cover;
use crate::identity::{Identity, MAIN, check_name};
use crate::part::ShardEntry;
use crate::{Code, Dims, Dtype, Error, Region, Result, Role, dims, limits, rule};

/// Steps of a native path.
const NATIVE_STEPS: usize = 64;

/// A box of a tensor's shape, stored as one run of bytes of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Who wrote it.
    pub writer: u32,
    /// Position in the writer's list of shards.
    pub shard: u32,
    /// First byte, from the start of the shard's file.
    pub offset: u64,
    /// Where it lies in the tensor's shape.
    pub region: Region,
    /// CRC-32C of its bytes.
    pub crc32c: u32,
    /// Position of its first block's CRC in the shard's table; there exactly when the chunk has
    /// more than `block_bytes` bytes.
    pub table_index: Option<u64>,
}

/// How a framework called a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Native {
    /// The framework's name.
    pub framework: String,
    /// 1 to 64 steps into its state.
    pub path: Vec<NativeStep>,
}

impl Native {
    /// Checks it and that it comes after the one `before` it.
    pub(crate) fn check(&self, before: Option<&Self>) -> Result<()> {
        check_name(&self.framework, "framework name")?;
        let ascending = before.is_none_or(|before| before.framework < self.framework);
        if ascending && (1..=NATIVE_STEPS).contains(&self.path.len()) {
            return Ok(());
        }
        let message = format!(
            "expected frameworks in ascending order with paths of 1 to {NATIVE_STEPS} steps, found {:?} with {}",
            self.framework,
            self.path.len()
        );
        Err(Error::rule(Code::BadMember, rule::TENSOR_NATIVE, message))
    }
}

/// A step of a native path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NativeStep {
    /// Into a mapping.
    Key(String),
    /// Into a sequence.
    Index(u64),
}

/// A tensor: identity, type, shape, and where its elements are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// What identifies it.
    pub identity: Identity,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Global shape, in elements.
    pub shape: Dims,
    /// The part of a padded shape that means something.
    pub valid: Option<Dims>,
    /// For a slot: which axis of its parameter each axis follows.
    pub axes: Option<Vec<Option<u8>>>,
    /// For a flat companion: elements of the accompanied tensor that share one element of this.
    pub block: Option<u64>,
    /// How frameworks called it, ascending by framework.
    pub native: Vec<Native>,
    /// Ascending by `region.at`.
    pub chunks: Vec<Chunk>,
}

/// A second name of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The component of the second name.
    pub component: String,
    /// The second name.
    pub name: String,
    /// `param` or `buffer`, as the target's.
    pub role: Role,
    /// The tensor meant.
    pub of: Identity,
    /// How frameworks called it by this name, ascending by framework.
    pub native: Vec<Native>,
}

/// An entry of a part or page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A tensor.
    Tensor(Tensor),
    /// A second name of one.
    Alias(Alias),
}

impl Tensor {
    /// A tensor of this identity, type and shape, without chunks and without what may be left out.
    #[must_use]
    pub fn new(identity: Identity, dtype: Dtype, shape: &[u64]) -> Self {
        Self {
            identity,
            dtype,
            shape: Dims::from_slice(shape),
            valid: None,
            axes: None,
            block: None,
            native: Vec::new(),
            chunks: Vec::new(),
        }
    }

    /// Elements of its shape; of a flat companion, those of the tensor that it accompanies.
    ///
    /// # Errors
    /// [`Code::Limit`] when they do not fit 64 bits.
    pub fn elements(&self) -> Result<u64> {
        dims::elements(&self.shape)
    }

    /// Stored elements of the chunk or packed region `region`: those of the box, for a flat
    /// companion one for each block.
    ///
    /// # Errors
    /// [`Code::Limit`] when they do not fit 64 bits or the block is 0.
    pub fn stored_elements(&self, region: &Region) -> Result<u64> {
        let elements = region.elements()?;
        match self.block {
            None => Ok(elements),
            Some(block) => arith::ceil_div(elements, block, "blocks of a chunk"),
        }
    }

    /// Bytes of the chunk or packed region `region`.
    ///
    /// # Errors
    /// [`Code::Limit`] when they do not fit 64 bits.
    pub fn chunk_bytes(&self, region: &Region) -> Result<u64> {
        let bits = u64::from(self.dtype.bits());
        let elements = self.stored_elements(region)?;
        let bits = arith::mul(elements, bits, "bits of a chunk")?;
        arith::ceil_div(bits, 8, "bytes of a chunk")
    }

    /// Checks every rule of chapters 4 and 5 that needs neither shards nor cover: as
    /// [`check_description`](Self::check_description), and the chunks' boxes and order. Pointers
    /// in errors are relative to the entry.
    ///
    /// # Errors
    /// As its parts.
    pub fn check(&self, topology: &Topology) -> Result<()> {
        self.check_description(topology)?;
        self.check_each_chunk(|chunk| self.check_box(chunk))?;
        self.check_order()?;
        self.check_apart()?;
        self.check_split()
    }

    /// Checks the rules about everything but chunks.
    ///
    /// # Errors
    /// [`Code::BadName`], [`Code::BadIdentity`], [`Code::BadShape`], [`Code::BadMember`] or
    /// [`Code::Limit`].
    pub fn check_description(&self, topology: &Topology) -> Result<()> {
        self.identity.check(topology)?;
        self.check_shape()?;
        self.check_axes()?;
        check_native(&self.native)?;
        self.check_role()
    }

    /// Checks the rules about chunks but cover. Each lies in a shard of the right class,
    /// `shard(writer, position)`, and has a place in its table of block CRCs exactly when it is
    /// longer than `block_bytes`. [`check_description`](Self::check_description) comes first.
    ///
    /// # Errors
    /// [`Code::BadChunk`], [`Code::BadOrder`]; [`Code::Limit`] when it is split along too many
    /// axes.
    pub fn check_chunks<'s>(
        &self,
        block_bytes: u64,
        shard: impl Fn(u32, u32) -> Option<&'s ShardEntry>,
    ) -> Result<()> {
        self.check_each_chunk(|chunk| {
            self.check_box(chunk)?;
            match shard(chunk.writer, chunk.shard) {
                Some(shard) => self.check_place(chunk, block_bytes, shard),
                None => {
                    let message = format!(
                        "expected a shard of writer {}, found {}",
                        chunk.writer, chunk.shard
                    );
                    Err(bad_chunk(rule::CHUNK_SHARD, message))
                }
            }
        })?;
        self.check_order()?;
        self.check_apart()?;
        self.check_split()
    }

    /// Checks that every element lies in exactly one chunk. [`check`](Self::check) comes first.
    ///
    /// # Errors
    /// [`Code::CoverGap`], [`Code::CoverOverlap`]; [`Code::Limit`] when it is split along too
    /// many axes.
    pub fn check_cover(&self) -> Result<()> {
        let boxes = self.chunks.iter().map(|chunk| &chunk.region);
        cover::check_cover(&self.shape, boxes).map_err(|error| error.at_pointer("/chunks"))
    }

    fn check_shape(&self) -> Result<()> {
        let rank = self.shape.len();
        let bad = |rule, message: String, place: &str| {
            Err(Error::rule(Code::BadShape, rule, message).at_pointer(place))
        };
        if u64::try_from(rank).is_ok_and(|rank| rank > limits::DIMENSIONS) {
            let message = format!("expected at most {} axes, found {rank}", limits::DIMENSIONS);
            return bad(rule::TENSOR_RANK, message, "/shape");
        }
        let lengths = [
            ("/axes", self.axes.as_ref().map(Vec::len)),
            ("/valid", self.valid.as_ref().map(|valid| valid.len())),
        ];
        for (place, length) in lengths {
            if let Some(length) = length.filter(|length| *length != rank) {
                let message =
                    format!("expected one number for each of {rank} axes, found {length}");
                return bad(rule::TENSOR_RANK, message, place);
            }
        }
        if let Some(valid) = &self.valid {
            let above = valid.iter().zip(&self.shape).any(|(valid, size)| valid > size);
            if above || *valid == self.shape {
                let (valid, shape) = (valid.as_slice(), self.shape.as_slice());
                let message = format!("expected a part of the shape {shape:?}, found {valid:?}");
                return bad(rule::TENSOR_VALID, message, "/valid");
            }
        }
        let nonzero = self.shape.iter().filter(|size| **size > 0);
        let bits = nonzero
            .copied()
            .try_fold(u64::from(self.dtype.bits()), u64::checked_mul)
            .filter(|bits| *bits <= limits::TENSOR_BITS);
        if bits.is_none() {
            let message = format!(
                "expected a shape of at most {} bits, found {:?} of {}",
                limits::TENSOR_BITS,
                self.shape.as_slice(),
                self.dtype
            );
            return Err(Error::rule(Code::Limit, rule::TENSOR_SIZE, message).at_pointer("/shape"));
        }
        Ok(())
    }

    fn check_axes(&self) -> Result<()> {
        let Some(axes) = &self.axes else { return Ok(()) };
        let mut seen = 0_u64;
        let mut sound = !self.identity.slot.is_empty() && axes.iter().any(Option::is_some);
        for axis in axes.iter().flatten() {
            let bit = 1_u64.checked_shl(u32::from(*axis)).unwrap_or(0);
            sound &= u64::from(*axis) < limits::DIMENSIONS && seen & bit == 0;
            seen |= bit;
        }
        if sound {
            return Ok(());
        }
        let message = format!(
            "expected axes with a slot only, not all null, each once and below {}, found {axes:?} and slot {:?}",
            limits::DIMENSIONS,
            self.identity.slot
        );
        Err(Error::rule(Code::BadIdentity, rule::TENSOR_AXES, message).at_pointer("/axes"))
    }

    fn check_role(&self) -> Result<()> {
        let role = self.identity.role;
        let fits = matches!(self.dtype, Dtype::U8 | Dtype::U64) && self.shape.len() == 1;
        if role == Role::Blob && !fits {
            let message = format!(
                "expected a blob of U8 or U64 with one axis, found {} with {}",
                self.dtype,
                self.shape.len()
            );
            return Err(Error::rule(Code::BadIdentity, rule::TENSOR_BLOB, message));
        }
        match self.block {
            Some(block) if role != Role::Quant => {
                let message =
                    format!("expected a block for role quant only, found {block} for {role}");
                let error = Error::rule(Code::BadIdentity, rule::COMPANION_ROLE, message);
                Err(error.at_pointer("/block"))
            }
            _ => Ok(()),
        }
    }

    fn check_each_chunk(&self, check: impl Fn(&Chunk) -> Result<()>) -> Result<()> {
        for (position, chunk) in self.chunks.iter().enumerate() {
            check(chunk).map_err(|error| error.at_pointer(format!("/chunks/{position}")))?;
        }
        Ok(())
    }

    fn check_box(&self, chunk: &Chunk) -> Result<()> {
        let Region { at, extent } = &chunk.region;
        let (rule, wanted) = if at.len() != self.shape.len() || extent.len() != self.shape.len() {
            (rule::CHUNK_RANK, "a box of the tensor's rank")
        } else if extent.contains(&0) {
            (rule::CHUNK_NONEMPTY, "extents of 1 or more")
        } else if !chunk.region.is_within(&self.shape) {
            (rule::CHUNK_BOUNDS, "a box within the shape")
        } else {
            return Ok(());
        };
        Err(bad_chunk(rule, format!("expected {wanted}, found {}", chunk.region)))
    }

    fn check_order(&self) -> Result<()> {
        let neighbours = self.chunks.iter().zip(self.chunks.iter().skip(1));
        for (position, (before, chunk)) in (1_usize..).zip(neighbours) {
            if before.region.at > chunk.region.at {
                let message = format!(
                    "expected chunks in ascending order of `at`, found {} after {}",
                    chunk.region, before.region
                );
                let error = Error::rule(Code::BadOrder, rule::CHUNK_ORDER, message);
                return Err(error.at_pointer(format!("/chunks/{position}")));
            }
        }
        Ok(())
    }

    /// No byte of a shard is in two chunks. Where the chunks' places ascend as their boxes do, as
    /// in what one writer lays out in order, no sorting is needed.
    fn check_apart(&self) -> Result<()> {
        if self.all_apart(self.chunks.iter())? {
            return Ok(());
        }
        let mut placed: Vec<&Chunk> = self.chunks.iter().collect();
        placed.sort_unstable_by_key(|chunk| (chunk.writer, chunk.shard, chunk.offset));
        if self.all_apart(placed.into_iter())? {
            return Ok(());
        }
        let message = "expected chunks that share no byte of a shard, found two that do";
        Err(bad_chunk(rule::CHUNK_APART, message.to_owned()).at_pointer("/chunks"))
    }

    /// Whether each chunk begins in a later shard than the one before, or behind it.
    fn all_apart<'c>(&self, chunks: impl Iterator<Item = &'c Chunk>) -> Result<bool> {
        let mut free = (0, 0, 0);
        for chunk in chunks {
            if (chunk.writer, chunk.shard, chunk.offset) < free {
                return Ok(false);
            }
            let bytes = self.chunk_bytes(&chunk.region)?;
            let end = arith::add(chunk.offset, bytes, "end of a chunk")?;
            free = (chunk.writer, chunk.shard, end);
        }
        Ok(true)
    }

    fn check_split(&self) -> Result<()> {
        let mut split = 0_u32; // bit i: some chunk is shorter than the shape along axis i
        for chunk in &self.chunks {
            for (axis, (extent, size)) in (0_u32..).zip(chunk.region.extent.iter().zip(&self.shape))
            {
                split |= u32::from(extent < size).checked_shl(axis).unwrap_or(0);
            }
        }
        let axes = split.count_ones();
        if u64::from(axes) <= limits::SPLIT_AXES {
            return Ok(());
        }
        let message =
            format!("expected a split along at most {} axes, found {axes}", limits::SPLIT_AXES);
        Err(Error::rule(Code::Limit, rule::CHUNK_SPLIT, message).at_pointer("/chunks"))
    }

    fn check_place(&self, chunk: &Chunk, block_bytes: u64, shard: &ShardEntry) -> Result<()> {
        let role = self.identity.role;
        if shard.class != role.class() {
            let message =
                format!("expected a shard of class {}, found {}", role.class(), shard.class);
            return Err(bad_chunk(rule::SHARD_CLASS, message));
        }
        let bytes = self.chunk_bytes(&chunk.region)?;
        if chunk.offset.checked_add(bytes).is_none_or(|end| end > shard.bytes) {
            let message = format!(
                "expected {bytes} bytes within the shard's {}, found them at {}",
                shard.bytes, chunk.offset
            );
            return Err(bad_chunk(rule::CHUNK_SHARD, message));
        }
        let count = shard.crc_table.as_ref().map_or(0, |table| table.count);
        let blocks = arith::ceil_div(bytes, block_bytes, "blocks of a chunk")?;
        let sound = match chunk.table_index {
            None => bytes <= block_bytes,
            Some(index) => {
                bytes > block_bytes && index.checked_add(blocks).is_some_and(|end| end <= count)
            }
        };
        if sound {
            return Ok(());
        }
        let message = format!(
            "expected a table index exactly for chunks above {block_bytes} bytes, within {count} entries, found {:?} for {bytes} bytes",
            chunk.table_index
        );
        Err(bad_chunk(rule::CHUNK_TABLE_INDEX, message))
    }
}

impl Alias {
    /// Its own identity.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity {
            component: self.component.clone(),
            role: self.role,
            name: self.name.clone(),
            slot: String::new(),
            owner: String::new(),
            scope: self.of.scope.clone(),
        }
    }

    /// Checks every rule that needs no other entry. Pointers in errors are relative to the entry.
    ///
    /// # Errors
    /// [`Code::BadName`], [`Code::BadMember`], [`Code::BadIdentity`], [`Code::BadAlias`].
    pub fn check(&self, topology: &Topology) -> Result<()> {
        check_name(&self.component, "component").map_err(|error| error.at_pointer("/component"))?;
        check_name(&self.name, "alias name").map_err(|error| error.at_pointer("/name"))?;
        check_native(&self.native)?;
        if !matches!(self.role, Role::Param | Role::Buffer) || self.of.role != self.role {
            let message = format!(
                "expected an alias of role param or buffer, as its target, found {} of {}",
                self.role, self.of.role
            );
            return Err(Error::rule(Code::BadAlias, rule::ALIAS_ROLE, message).at_pointer("/role"));
        }
        // An error within the target's key is about the key as a whole.
        self.of.check(topology).map_err(|error| match error.rule_id() {
            Some(rule) => Error::rule(error.code(), rule, error.message()).at_pointer("/of"),
            None => error,
        })
    }
}

impl Entry {
    /// Its identity key.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Tensor(tensor) => tensor.identity.key(),
            Self::Alias(alias) => alias.identity().key(),
        }
    }

    /// Its role.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Self::Tensor(tensor) => tensor.identity.role,
            Self::Alias(alias) => alias.role,
        }
    }

    /// Its component.
    #[must_use]
    pub fn component(&self) -> &str {
        match self {
            Self::Tensor(tensor) => &tensor.identity.component,
            Self::Alias(alias) => &alias.component,
        }
    }

    /// Its scope; an alias has its target's.
    #[must_use]
    pub fn scope(&self) -> &Coordinate {
        match self {
            Self::Tensor(tensor) => &tensor.identity.scope,
            Self::Alias(alias) => &alias.of.scope,
        }
    }

    /// Checks every rule that needs neither shards, nor cover, nor other entries.
    ///
    /// # Errors
    /// As [`Tensor::check`] and [`Alias::check`].
    pub fn check(&self, topology: &Topology) -> Result<()> {
        match self {
            Self::Tensor(tensor) => tensor.check(topology),
            Self::Alias(alias) => alias.check(topology),
        }
    }
}

fn check_native(native: &[Native]) -> Result<()> {
    let mut before = None;
    for (position, native) in native.iter().enumerate() {
        native.check(before).map_err(|error| error.at_pointer(format!("/native/{position}")))?;
        before = Some(native);
    }
    Ok(())
}

/// Whether a component is the one that is left out.
pub(crate) fn is_main(component: &str) -> bool {
    component == MAIN
}

fn bad_chunk(rule: &'static str, message: String) -> Error {
    Error::rule(Code::BadChunk, rule, message)
}
