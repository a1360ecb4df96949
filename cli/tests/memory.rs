//! Memory does not grow with the checkpoint: a model of 768 MiB passes through every command that moves data in less
//! than 256 MiB.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::print_stdout,
    reason = "a test says where it fails by panicking"
)]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MODEL_BYTES: u64 = 768 << 20;
const LIMIT_BYTES: u64 = 256 << 20;

#[test]
fn moving_data_takes_bounded_memory() {
    let scratch = tempfile::tempdir().unwrap();
    model(&scratch.path().join("model.safetensors"));
    for command in [
        "import model.safetensors --out ckpt --writers 3",
        "verify ckpt",
        "reshard ckpt --out five --writers 5",
        "copy five six",
        "diff ckpt six",
        "export six --out out",
        "cat six wide --format raw -o wide",
    ] {
        let peak = peak_of(command, scratch.path());
        println!("{:>4} MiB  {command}", peak >> 20);
        assert!(peak < LIMIT_BYTES, "{command}: {peak} bytes");
        assert!(peak > 1 << 20, "{command}: {peak} bytes is no measurement");
    }
}

/// One tensor of half a GiB and one of a quarter, whose rows are 32 MiB; holes, so that making it is quick.
fn model(path: &Path) {
    let (tall, wide) = (512_u64 << 20, 256_u64 << 20);
    let header = format!(
        r#"{{"tall":{{"dtype":"F32","shape":[{},1024],"data_offsets":[0,{tall}]}},"wide":{{"dtype":"F32","shape":[8,{}],"data_offsets":[{tall},{MODEL_BYTES}]}}}}"#,
        tall / 4096,
        wide / 32
    );
    let mut file = File::create_new(path).unwrap();
    file.write_all(&u64::try_from(header.len()).unwrap().to_le_bytes()).unwrap();
    file.write_all(header.as_bytes()).unwrap();
    file.set_len(8 + u64::try_from(header.len()).unwrap() + MODEL_BYTES).unwrap();
}

/// Runs the program and watches the greatest resident memory that the kernel has seen of it.
fn peak_of(command: &str, dir: &Path) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_waystation"))
        .args(command.split(' '))
        .current_dir(dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let ended = loop {
        // The file is still there, without the line, between the end of the process and the wait for it.
        if let Ok(text) = fs::read_to_string(&status)
            && let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))
        {
            peak = peak.max(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024);
        }
        if let Some(ended) = child.try_wait().unwrap() {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(ended.success(), "{command}: {ended}");
    peak
}
