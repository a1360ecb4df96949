//! What a writer says of a tensor before it says where its chunks lie.
//!
//! It knows the members that all writers of a tensor must agree on. It must not know chunks.

use waystation_format::entry::{Native, Tensor};
use waystation_format::identity::Identity;
use waystation_format::{Dims, Dtype};

/// A tensor without its chunks. Every writer that has a piece of it declares it alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorDecl {
    /// Which tensor it is.
    pub identity: Identity,
    /// Element type.
    pub dtype: Dtype,
    /// Global shape, in elements.
    pub shape: Dims,
    /// The part of a padded shape that means something, in elements.
    pub valid: Option<Dims>,
    /// For each axis, the axis of the parameter that it follows.
    pub axes: Option<Vec<Option<u8>>>,
    /// Elements of a block, of a flat companion.
    pub block: Option<u64>,
    /// How frameworks call it, sorted by framework.
    pub native: Vec<Native>,
}

impl TensorDecl {
    /// A tensor of which nothing special is to be said.
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
        }
    }

    /// The entry, without chunks.
    #[must_use]
    pub fn to_tensor(&self) -> Tensor {
        Tensor {
            identity: self.identity.clone(),
            dtype: self.dtype,
            shape: self.shape.clone(),
            valid: self.valid.clone(),
            axes: self.axes.clone(),
            block: self.block,
            native: self.native.clone(),
            chunks: Vec::new(),
        }
    }
}

impl From<&Tensor> for TensorDecl {
    /// What `tensor` says apart from its chunks: for writing it again.
    fn from(tensor: &Tensor) -> Self {
        Self {
            identity: tensor.identity.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            valid: tensor.valid.clone(),
            axes: tensor.axes.clone(),
            block: tensor.block,
            native: tensor.native.clone(),
        }
    }
}
