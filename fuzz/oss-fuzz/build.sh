#!/bin/bash -eu
# Builds every target with its options, dictionary and seeds into $OUT. Run by OSS-Fuzz and ClusterFuzzLite in their image.

cd "$SRC/waystation"
cargo fuzz build -O --debug-assertions

# The seeds are packed by a program of its own, built without the fuzzer's flags.
env -u RUSTFLAGS cargo run --release -p waystation-fuzz --bin waystation-fuzz-seeds -- "$WORK/seeds"

for program in fuzz/fuzz_targets/*.rs; do
    target=$(basename "$program" .rs)
    # It needs the reader in Python beside it, which the runner's image does not have.
    [ "$target" = differential ] && continue
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$target" "$OUT/" 2>/dev/null ||
        cp "target/x86_64-unknown-linux-gnu/release/$target" "$OUT/"
    cp "fuzz/$target.options" "$OUT/"
    cp fuzz/regressions/"$target"/* "$WORK/seeds/$target/"
    (cd "$WORK/seeds/$target" && zip -q -r "$OUT/${target}_seed_corpus.zip" .)
done
cp fuzz/dict/*.dict "$OUT/"
