"""The native half of the package, typed. Nothing here is public: `waystation` is.

Regions are `(start, extent)` in elements of the global shape. Data are 1-D contiguous `uint8` arrays that speak DLPack
(NumPy's, PyTorch's, or a `Mapped` below), in the packed row-major form of the specification. Text named `json` is
JSON of the specification's own forms. Every call that moves many bytes releases the GIL and runs its work on other threads,
while the calling thread reports progress and looks for signals: Ctrl-C raises `KeyboardInterrupt` with nothing half done
taken for a checkpoint. Everything raises `waystation.errors.Error`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, final

KeyTuple: TypeAlias = tuple[str, str, str, str | None, str | None, tuple[tuple[str, int], ...]]
"""component, role, name, slot, owner, scope"""
Region: TypeAlias = tuple[Sequence[int], Sequence[int]]
Topology: TypeAlias = Sequence[tuple[str, int]]
Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with what is done, bytes so far and bytes in all (0: unknown); an exception it raises stops the work."""

@final
class Entry:
    """A tensor, or an alias of one, as the metadata say it."""

    key: KeyTuple
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    valid: tuple[int, ...] | None
    axes: tuple[int | None, ...] | None
    block: int | None
    native: list[tuple[str, list[str | int]]]
    chunks: list[tuple[tuple[int, ...], tuple[int, ...]]]
    of: KeyTuple | None
    """The target's key where this is an alias; `key` and `native` are then its own, the other members the target's."""

@final
class Mapped:
    """Bytes of a tensor in a private mapping: writable, and what is written stays in this process.

    All arrays made of one `Mapped` share its memory; two of one tensor do not. Pages that were not written to are still the
    file's. Whoever truncates it meanwhile makes zeros of the rest of its last page and ends this process at the next access after
    that (`SIGBUS`), also to what was written. Each takes one of the mappings that a process may have, 65,530 unless the machine
    says otherwise.
    """

    nbytes: int
    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Checkpoint:
    path: str
    run: str
    step: int
    attempt: str
    timeline: int
    digest: str
    parent: str | None
    writers: int
    block_bytes: int
    topology: list[tuple[str, int]]
    @staticmethod
    def open(path: str, *, verify_reads: bool = True, threads: int | None = None, memory_budget: int | None = None,
             trust_links: bool = False) -> Checkpoint: ...
    def manifest_json(self) -> str: ...
    def entries(self) -> Iterator[Entry]:
        """All, in order of identity key; pages are read as they are needed."""
    def find(self, key: KeyTuple) -> Entry | None: ...
    def find_named(self, component: str, name: str) -> Entry | None:
        """The param, buffer or alias of that name without a scope."""
    def read(self, wants: Sequence[tuple[KeyTuple, Region | None, Any]], *, progress: Progress | None = None) -> None:
        """Reads regions (None: all) into writable arrays of exactly their packed length, as one plan, verified. The arrays must
        not overlap, and nobody may touch them meanwhile; after an error they hold anything."""
    def map(self, key: KeyTuple) -> Mapped:
        """`not-one-run` where the elements are not one run of bytes of one file."""
    def records(self) -> list[tuple[str, str, list[tuple[str, int]], str]]:
        """kind, name, coordinate, value as json"""
    def attachments(self) -> list[tuple[str, int, str]]:
        """path, bytes, sha256"""
    def attachment(self, path: str) -> bytes: ...
    def grades_json(self) -> str:
        """As `report` of `restore_json`, where no topology is asked about."""
    def restore_json(self, topology: Topology, coordinate: Sequence[tuple[str, int]], options_json: str) -> str:
        """What a place gets, see waystation.resume; what is not exact is not refused here: `refused` in the answer says what
        would be. Records that are wrong, or another source than the cursor's, raise.

        Options: {"streams"?: grade, "cursors"?: grade, "leave_out"?: [name], "sources"?: [[cursor, records, sha256]],
        "fingerprints"?: {cursor: value tree}, "budget_steps"?, "budget_bytes"?}. Answer: {"progress","optimizers","averages",
        "schedules","scalers","values","streams": [{"name","grade","reason","coordinate","value","forked"}],
        "cursors": [{"name","grade","reason","coordinate","cursor","rank","wanted"}],
        "report": [{"kind","name","coordinate","grade","reason"}],"refused"}; the state in a stream's value is always inline."""
    def walk(self, cursor_json: str, *, budget: int | None = None) -> Walk:
        """As `Walk`, for a cursor that may name tensors of the checkpoint."""

@final
class Walk:
    """The items of a computed data cursor, from the one that comes next."""

    def __new__(cls, cursor_json: str, *, budget: int | None = None) -> Walk:
        """`cursor_json` need not have its canary, `next`. `budget` in steps of the specification, None without bound. A walk that failed, or was stopped, is not walked on."""
    def take(self, count: int) -> list[Any]:
        """The next items, fewer only at the end: an ordinal, or (child, item) of a mixture. Packs are carried, not computed."""
    def batch(self, count: int) -> list[Any]:
        """The next batch, as the epoch's end says: fewer than `count` where it is short, and `[]` at the end."""
    def share(self, batch: int, rule: str, rank: int, ranks: int) -> list[Any]:
        """What of the next batch goes to one rank."""
    def skip(self, count: int) -> int: ...
    def cursor_json(self, canary: int) -> str:
        """The cursor's record value, with a canary of so many items."""

def order(order_json: str, n: int, epoch: int, first: int, count: int) -> list[int]:
    """Ordinals first … first+count of a computed order."""

def stream_from_native(form: str, native: bytes, *, on_reshape: str, framework: str, initial_seed: int | None = None) -> str:
    """The value of an `rng` record, canary and caches included, as json. `form` and `native` as `waystation rng convert` has
    them: raw bytes for torch-cpu, torch-cuda, torch-mps; JSON text for numpy, numpy-legacy, python, torch-key, mlx; for jax
    {"impl","partitionable"?,"value"} and for rust {"algorithm","value"}, which those forms do not say themselves. Integers may be
    as long as they are, also as strings of decimal digits."""
def stream_to_native(form: str, value_json: str) -> bytes:
    """The state of an `rng` record in a framework's form, as `stream_from_native` reads it; `bad-argument` where the form cannot
    hold it, such as torch-cpu without an initial seed."""

@final
class SessionPlan:
    """What all processes of a job agree on once."""

    run: str
    timeline: int
    writers: int
    topology: list[tuple[str, int]]
    parent: str | None
    block_bytes: int
    @staticmethod
    def next_in(run_path: str, name: str, *, writers: int, topology: Topology = (), parent: str | None = None,
                block_bytes: int | None = None) -> SessionPlan: ...
    @staticmethod
    def from_json(json: str) -> SessionPlan: ...
    def to_json(self) -> str: ...
    def attempt_name(self, step: int, counter: int) -> str: ...

def make_attempt(run_path: str, plan: SessionPlan, step: int, counter: int) -> str:
    """Makes the directory of a save, durably, and returns its name; `exists` and `fenced` as the specification says."""

@final
class Session:
    """One writer of one attempt, until the layout is fixed."""

    @staticmethod
    def begin(path: str, plan: SessionPlan, step: int, counter: int, writer: int, *, threads: int | None = None,
              shard_bytes: int | None = None, check_state: bool = True) -> Session:
        """Begins in the directory `path` that make_attempt made; `name-disagrees` where it is that of another save."""
    @staticmethod
    def standing_alone(path: str, *, run: str, step: int, topology: Topology = (), parent: str | None = None,
                       block_bytes: int | None = None, threads: int | None = None, shard_bytes: int | None = None,
                       check_state: bool = True) -> Session:
        """Makes the directory `path` (existing: `exists`) and begins as its only writer."""
    def declare(self, key: KeyTuple, dtype: str, shape: Sequence[int], *, axes: Sequence[int | None] | None = None,
                native: Sequence[tuple[str, Sequence[str | int]]] = ..., valid: Sequence[int] | None = None,
                block: int | None = None) -> None: ...
    def chunk(self, key: KeyTuple, dtype: str, shape: Sequence[int], start: Sequence[int], extent: Sequence[int], *,
              axes: Sequence[int | None] | None = None, native: Sequence[tuple[str, Sequence[str | int]]] = ...,
              valid: Sequence[int] | None = None, block: int | None = None) -> int:
        """Says that this writer will write a box; the number (0, 1, …) is its place in `Writing.write`."""
    def alias(self, component: str, role: str, name: str, of: KeyTuple, *,
              native: Sequence[tuple[str, Sequence[str | int]]] = ...) -> None: ...
    def record(self, kind: str, name: str, coordinate: Sequence[tuple[str, int]], value_json: str) -> None: ...
    def omit(self, component: str, names: Sequence[str], reason: str) -> None: ...
    def inventory(self, keys: Sequence[KeyTuple]) -> None:
        """All identities of the whole attempt, tensors and aliases."""
    def attach(self, path: str, data: bytes) -> None: ...
    def attach_file(self, path: str, source: str) -> None: ...
    def producer(self, name: str, version: str) -> None: ...
    def lay_out(self) -> Writing: ...

@final
class Writing:
    """A writer whose layout is fixed."""

    nbytes: int
    """Of all chunks."""
    def write(self, chunks: Sequence[tuple[int, Any]], *, threads: int | None = None, progress: Progress | None = None) -> None:
        """Writes whole chunks. Data are read during the call only, and each chunk is written once. After an interrupt the chunks
        are not whole, and `finish` refuses."""
    def finish(self) -> str:
        """Makes all durable and writes the part; its file name."""
    def close(self) -> None:
        """Closes its files, unfinished; nothing can be written any more. Harmless when it is finished."""

def commit(path: str, *, run_path: str | None = None, name: str | None = None, deadline: float | None = None, poll: float = 0.2,
           check_state: bool = True, progress: Progress | None = None) -> tuple[str, bool]:
    """Digest, and whether it was committed before. `deadline` in seconds; None looks once.

    Without `run_path` the run is the parent of a directory that has an attempt's name, and any other stands alone."""
def verify_json(path: str, *, quick: bool = False, threads: int | None = None, progress: Progress | None = None) -> str:
    """As `waystation verify --json`."""
def latest_json(run_path: str) -> str:
    """{"name","path","step","attempt","digest","skipped":[{"name","error"}]}; raises `no-checkpoint`, `none-resumable`."""
def list_json(run_path: str) -> str:
    """[{"name","step","attempt","state","bytes"?,"digest"?,"error"?,"rejected"?,"pins"}]; state as `waystation list --json`."""
def gc_json(run_path: str, *, keep_last: int, keep_every: int | None = None, uncommitted_older_than: float | None = None,
            dry_run: bool = False) -> str:
    """{"dry_run","items":[{"name","fate","why","error"}]} as `waystation gc --json`; fate: kept, removed, left, failed."""
def abandon(run_path: str, name: str) -> None:
    """Removes an attempt that its only writer gives up; `kept` when it is committed, pinned, or being removed."""
def reject(path: str, reason: str) -> None:
    """`exists` when it is rejected for another reason."""
def pin(path: str, name: str) -> None: ...
def unpin(path: str, name: str) -> None: ...
def salvage(path: str, *, progress: Progress | None = None) -> str:
    """The digest of what is committed then."""
def copy(source: str, out: str, *, progress: Progress | None = None) -> str:
    """The digest, which is the original's."""
def reshard(source: str, out: str, *, writers: int, progress: Progress | None = None) -> str:
    """The digest of the new checkpoint, whose parent the original is."""
def copy_bytes(memory: Any, sources: Iterable[tuple[Any, int, int]], *, threads: int | None = None) -> None:
    """Copies each (source, place, bytes) to its place in `memory`, a 1-D `uint8` array, on many threads, without the GIL.

    A source is an array of any type and shape, row-major in host memory, or a DLPack capsule of one that nobody took yet. It has
    just so many bytes, is apart from `memory`, and lies behind the ones before. What comes first is copied while the rest is still
    asked for; where that raises, nothing is copied any more when this does."""
def export(path: str, out: str, *, roles: Sequence[str] = ..., component: str = "main",
           max_shard_bytes: int | None = None, single: bool = False, progress: Progress | None = None) -> str:
    """As `waystation export`; the answer is what it prints with --json. `out` is a directory that must not exist.

    Keys are names without the component, which is the only one written. Aliases of what is written are left to the loader, who
    finds them in the answer's `tied`. `single` writes nothing but one `model.safetensors` of any size, aliases written out,
    without attachments."""
def import_json(source: str, *, out: str | None = None, run_path: str | None = None, step: int = 0, writers: int = 1,
                attach: Sequence[str] = ..., progress: Progress | None = None) -> str:
    """As `waystation import`; the answer is what it prints with --json. One of `out` (a directory to make) and `run_path`."""
def main(arguments: Sequence[str]) -> int:
    """The program `waystation`, with its name first; the exit status. It prints to the process's standard output and error, and
    takes over SIGINT, SIGTERM and SIGHUP for good: only for a process that does nothing else."""
