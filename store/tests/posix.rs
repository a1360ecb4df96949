//! What only the operating system has: links, pipes, sockets, devices, full disks, odd names.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use waystation_format::{Code, rule};
use waystation_store::testing::skipped;
use waystation_store::{
    Fs as _, Kind, PosixFs, Put, make_path, open_or_make_path, open_path, parent_and_name,
};

/// Every kind of thing that is no regular file, by name. Devices need privilege.
fn strange_things(dir: &Path) -> Vec<&'static str> {
    let mut things = vec!["dir", "link", "dangling", "dir-link", "pipe", "socket"];
    fs::write(dir.join("file"), b"x").unwrap();
    fs::create_dir(dir.join("dir")).unwrap();
    symlink("file", dir.join("link")).unwrap();
    symlink("nowhere", dir.join("dangling")).unwrap();
    symlink("dir", dir.join("dir-link")).unwrap();
    mknodat(CWD, dir.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    UnixListener::bind(dir.join("socket")).unwrap();
    let null = rustix::fs::makedev(1, 3);
    match mknodat(CWD, dir.join("device"), FileType::CharacterDevice, Mode::RWXU, null) {
        Ok(()) => things.push("device"),
        Err(why) => skipped("a device in place of a file", why),
    }
    things
}

/// Runs what might wait for ever; panics when it does.
fn in_time<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    thread::spawn(move || done.send(run()));
    wait.recv_timeout(Duration::from_secs(20)).unwrap()
}

#[test]
fn only_regular_files_open() {
    let dir = tempfile::tempdir().unwrap();
    let things = strange_things(dir.path());
    let store = open_path(dir.path()).unwrap();
    for name in things {
        let (store, opened) = (store.clone(), name);
        let e = in_time(move || store.open(opened)).unwrap_err();
        assert_eq!((e.code(), e.rule_id()), (Code::NotRegular, Some(rule::DIR_REGULAR)), "{name}");
        assert_eq!(e.location().file.as_deref(), Some(name));
    }
    assert_eq!(store.open("file").unwrap().bytes(), 1);
    assert_eq!(store.open("none").unwrap_err().code(), Code::FileMissing);
}

/// The store looks before it opens; should a name change in between, the open itself is safe.
#[test]
fn opening_alone_neither_waits_nor_follows() {
    let dir = tempfile::tempdir().unwrap();
    strange_things(dir.path());
    let root = PosixFs.open_root(dir.path()).unwrap();
    let pipe = in_time({
        let root = root.try_clone().unwrap();
        move || PosixFs.open_read(&root, "pipe")
    });
    assert_eq!(PosixFs.stat_file(&pipe.unwrap()).unwrap().kind, Kind::Other);
    for name in ["link", "dangling", "dir-link", "../x", "dir/..", "/etc"] {
        assert!(PosixFs.open_read(&root, name).is_err(), "{name}");
        assert!(PosixFs.open_dir(&root, name).is_err(), "{name}");
    }
}

#[test]
fn no_link_is_followed_beneath_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let things = strange_things(dir.path());
    let store = open_path(dir.path()).unwrap();
    for name in things {
        assert_eq!(store.create(name, None).unwrap_err().code(), Code::Exists, "{name}");
        assert_eq!(store.put_new(name, b"x").unwrap(), Put::Exists, "{name}");
        assert_eq!(store.make_dir(name).unwrap_err().code(), Code::Exists, "{name}");
        let kind = store.stat(name).unwrap().unwrap().kind;
        if name == "dir" {
            assert_eq!(kind, Kind::Directory);
        } else {
            assert_eq!(kind, Kind::Other, "{name}");
            let (shared, opened) = (store.clone(), name);
            let e = in_time(move || shared.dir(opened)).unwrap_err();
            assert_eq!(e.code(), Code::NotRegular, "{name}");
            assert_eq!(store.remove_dir(name).unwrap_err().code(), Code::NotRegular, "{name}");
            assert!(store.remove(name).unwrap());
        }
    }
    assert!(!dir.path().join("nowhere").exists());
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"x");
    assert!(dir.path().join("dir").is_dir());
}

#[test]
fn the_users_own_path_may_go_through_links() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("real/deep")).unwrap();
    symlink("real", dir.path().join("link")).unwrap();
    assert_eq!(open_path(&dir.path().join("link")).unwrap().list().unwrap().len(), 1);
    open_path(&dir.path().join("link/deep")).unwrap();
    let (parent, name) = parent_and_name(&dir.path().join("link/new")).unwrap();
    assert_eq!((parent.list().unwrap().len(), &*name), (1, "new"));
}

#[test]
fn paths_are_opened_and_made() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    fs::write(at("file"), b"x").unwrap();
    assert_eq!(open_path(&at("none")).unwrap_err().code(), Code::NotFound);
    assert_eq!(open_path(&at("file")).unwrap_err().code(), Code::NotRegular);
    assert_eq!(open_path(&at("file/below")).unwrap_err().code(), Code::NotRegular);

    let made = make_path(&at("made")).unwrap();
    assert_eq!(made.describe(), at("made").display().to_string());
    assert_eq!(make_path(&at("made")).unwrap_err().code(), Code::Exists);
    assert_eq!(make_path(&at("file")).unwrap_err().code(), Code::Exists);
    assert_eq!(make_path(&at("none/deep")).unwrap_err().code(), Code::NotFound);
    let deep = open_or_make_path(&at("new/deep/er")).unwrap();
    assert_eq!(deep.put_new("seen", b"").unwrap(), Put::Created);
    assert!(open_or_make_path(&at("new/deep/er")).unwrap().stat("seen").unwrap().is_some());
    assert_eq!(open_or_make_path(&at("file")).unwrap_err().code(), Code::NotRegular);
    assert_eq!(open_or_make_path(&at("file/deep")).unwrap_err().code(), Code::NotRegular);
    assert!(!at("none").exists());
    for bad in ["/", "..", "a/.."] {
        assert_eq!(make_path(Path::new(bad)).unwrap_err().code(), Code::BadArgument, "{bad}");
    }
    let odd = at("x").with_file_name(OsStr::from_bytes(b"\xff"));
    assert_eq!(make_path(&odd).unwrap_err().code(), Code::BadArgument);
    let (here, name) = parent_and_name(Path::new("plain")).unwrap();
    assert_eq!((here.describe().as_str(), name.as_str()), (".", "plain"));
}

#[test]
fn names_that_are_not_utf8_are_listed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let raw = OsStr::from_bytes(b"odd\xff");
    // Some file systems refuse such names; then there is nothing to list.
    if let Err(why) = fs::write(dir.path().join(raw), b"xyz") {
        return skipped("a name that is not UTF-8", why);
    }
    let store = open_path(dir.path()).unwrap();
    let listed = store.list().unwrap();
    assert_eq!((listed.len(), &*listed[0].name, listed[0].stat.bytes), (1, "odd/xff", 3));
    assert_eq!(store.stat("odd/xff").unwrap(), Some(listed[0].stat));
    assert_eq!(store.open("odd/xff").unwrap_err().code(), Code::BadArgument);
    assert_eq!(store.create("new/xff", None).unwrap_err().code(), Code::BadArgument);
    assert!(store.remove("odd/xff").unwrap());
    assert!(!dir.path().join(raw).exists());
}

#[test]
fn files_are_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_path(dir.path()).unwrap();
    let new = store.create("a", Some(1 << 20)).unwrap();
    assert_eq!(fs::metadata(dir.path().join("a")).unwrap().len(), 1 << 20);
    new.write_at(b"x", 0).unwrap();
    new.finish().unwrap();
    let stat = store.stat("a").unwrap().unwrap();
    assert_eq!((stat.kind, stat.bytes), (Kind::Regular, 1 << 20));
    let age = SystemTime::now().duration_since(stat.modified.unwrap()).unwrap_or_default();
    assert!(age < Duration::from_secs(3600), "{age:?}");
    assert!(store.open("a").unwrap().raw_fd().is_some());
    // Past what the kernel can address.
    let late = store.open("a").unwrap().read_at(&mut [0], u64::MAX).unwrap_err();
    assert_ne!(late.code(), Code::BadArgument);
}

#[test]
fn a_committed_name_shows_all_its_bytes_or_none() {
    // Readers racing with put_new never see a part of an object.
    let dir = tempfile::tempdir().unwrap();
    let store = open_path(dir.path()).unwrap();
    let bytes = vec![0x5a; 1 << 16];
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            loop {
                if let Some(stat) = store.stat("last").unwrap() {
                    return stat.bytes;
                }
                for i in 0..20 {
                    if let Some(stat) = store.stat(&format!("f{i}")).unwrap() {
                        assert_eq!(stat.bytes, 1 << 16);
                    }
                }
            }
        });
        for i in 0..20 {
            assert_eq!(store.put_new(&format!("f{i}"), &bytes).unwrap(), Put::Created);
        }
        assert_eq!(store.put_new("last", &bytes).unwrap(), Put::Created);
        assert_eq!(reader.join().unwrap(), 1 << 16);
    });
}

#[test]
fn of_many_that_put_one_name_one_wins() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_path(dir.path()).unwrap();
    let puts: Vec<Put> = thread::scope(|scope| {
        let store = &store;
        let racers: Vec<_> =
            (0..8_u8).map(|i| scope.spawn(move || store.put_new("a", &[i; 9]).unwrap())).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    assert_eq!(puts.iter().filter(|&&put| put == Put::Created).count(), 1);
    let winner = puts.iter().position(|&put| put == Put::Created).unwrap();
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), [u8::try_from(winner).unwrap(); 9]);
    assert_eq!(store.list().unwrap().len(), 1);
}

/// Mounts a disk of 1 MiB where that is permitted.
#[test]
fn a_disk_that_is_full_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let _disk = match SmallDisk::mount(dir.path()) {
        Ok(disk) => disk,
        Err(why) => return skipped("a small disk that is full (a failing one is not)", why),
    };
    let store = open_path(dir.path()).unwrap();
    assert_eq!(store.create("big", Some(1 << 22)).unwrap_err().code(), Code::IoFull);
    assert_eq!(store.put_new("big", &vec![1; 1 << 22]).unwrap_err().code(), Code::IoFull);
    assert!(store.list().unwrap().is_empty());
    let new = store.create("growing", None).unwrap();
    let e = new.write_at(&vec![1; 1 << 22], 0).unwrap_err();
    assert_eq!(e.code(), Code::IoFull);
    assert!(e.location().offset.is_some_and(|offset| offset > 0), "{e}");
    assert_eq!(new.finish().unwrap_err().code(), Code::Poisoned);
}

struct SmallDisk<'d>(&'d Path);

impl<'d> SmallDisk<'d> {
    /// # Errors
    /// Why there is none here.
    fn mount(at: &'d Path) -> Result<Self, String> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(at);
        let output = mount.output().map_err(|e| format!("mount: {e}"))?;
        if output.status.success() {
            return Ok(Self(at));
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0).output();
    }
}

/// A pipe cannot be forced to a disk, and the system says so: it was asked.
#[test]
fn fsync_asks_the_system() {
    let (pipe, _other) = std::io::pipe().unwrap();
    let pipe = std::os::fd::OwnedFd::from(pipe);
    let refused = Some(Errno::INVAL.raw_os_error());
    assert_eq!(PosixFs.sync_file(&pipe).unwrap_err().raw_os_error(), refused);
    assert_eq!(PosixFs.sync_dir(&pipe).unwrap_err().raw_os_error(), refused);
}
