//! Inputs become directories and directories inputs, as people do it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use waystation_conformance::files::Files;
use waystation_fuzz::{differential, gen_archive, goldens};

fn archive(verb: &str, from: &Path, to: &Path) -> Output {
    let program = env!("CARGO_BIN_EXE_waystation-fuzz-archive");
    Command::new(program).arg(verb).arg(from).arg(to).output().unwrap()
}

#[test]
fn a_run_goes_to_disk_and_back() {
    let run = goldens::NAMES.iter().position(|name| *name == "run").unwrap();
    let files: &Files = goldens::files(run).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let [input, folder, again] = ["input", "folder", "again"].map(|name| scratch.path().join(name));
    fs::write(&input, gen_archive::encode(Some(run), files)).unwrap();
    let unpacked = archive("unpack", &input, &folder);
    assert!(unpacked.status.success(), "{unpacked:?}");
    for (path, bytes) in files {
        assert_eq!(&fs::read(folder.join(path)).unwrap(), bytes, "{path}");
    }
    let packed = archive("pack", &folder, &again);
    assert!(packed.status.success(), "{packed:?}");
    assert_eq!(&gen_archive::decode(&fs::read(&again).unwrap()).files, files);
    // What an input cannot say is not left out in silence, and a pipe is not waited for.
    std::os::unix::fs::symlink("nowhere", folder.join("link")).unwrap();
    let refused = archive("pack", &folder, &again);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("link: no file"));
    // What is there is not written over.
    assert_eq!(archive("unpack", &input, &folder).status.code(), Some(1));
}

#[test]
fn what_no_disk_holds_is_named_and_what_is_no_file_is_a_link() {
    let regressions = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let scratch = tempfile::tempdir().unwrap();
    for (input, said) in [
        ("sources/folder-under-a-file", "left out"),
        ("open/manifest-is-no-file", "a symbolic link to nothing"),
    ] {
        let folder = scratch.path().join(said);
        let unpacked = archive("unpack", &regressions.join(input), &folder);
        assert!(unpacked.status.success(), "{input}: {unpacked:?}");
        assert!(String::from_utf8(unpacked.stdout).unwrap().contains(said), "{input}");
    }
    let link = scratch.path().join("a symbolic link to nothing/manifest.json");
    assert!(fs::symlink_metadata(link).unwrap().is_symlink());
}

#[test]
fn what_is_no_directory_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let input = scratch.path().join("input");
    fs::write(&input, [differential::RECIPE, 1, 2, 3]).unwrap();
    let refused = archive("unpack", &input, &scratch.path().join("folder"));
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("a recipe"));
    assert!(!scratch.path().join("folder").exists());
    assert_eq!(archive("print", &input, &input).status.code(), Some(2));
}
