//! Named objects in one flat directory: what readers and writers of checkpoints stand on.
//!
//! [`Store`] is object-safe and speaks in the project's errors; [`Fs`] below it has one method a
//! system call, so that a disk in memory, one that fails on demand or one that loses power runs
//! the very same code as the real one. The crate knows names, bytes and durability. It must not
//! know what the objects hold: no metadata, no names of the format beyond `tmp-` of its own
//! temporaries.
//!
//! ```
//! use waystation_store::{MemoryFs, Put};
//!
//! # fn main() -> waystation_format::Result<()> {
//! let store = MemoryFs::new().store(); // or open_path("runs/a".as_ref())?
//! let shard = store.create("shard", Some(8))?;
//! shard.write_at(b"data", 4)?; // any thread, any order
//! shard.finish()?; // fsync and checked close, once
//! assert_eq!(store.put_new("root", b"{}")?, Put::Created); // whole or not at all
//! store.sync()?; // now both names last
//!
//! let mut tail = [0; 4];
//! store.open("shard")?.read_at(&mut tail, 4)?;
//! assert_eq!(&tail, b"data");
//! # Ok(())
//! # }
//! ```

mod counting;
mod dir;
mod fs;
mod memory;
mod name;
mod object;
mod path;
mod posix;
mod store;
pub mod testing;

pub use counting::{Access, Counting};
pub use dir::DirStore;
pub use fs::{Fs, Kind, Stat};
pub use memory::{MemoryDir, MemoryFile, MemoryFs};
pub use path::{make_durable, make_path, open_or_make_path, open_path, parent_and_name};
pub use posix::PosixFs;
pub use store::{Listed, NewObject, Object, Put, Store};
