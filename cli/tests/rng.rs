//! `rng next` and `rng convert` from the outside. The states and numbers are those of real
//! frameworks; their forms are compared as Python prints them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    unreachable_pub,
    dead_code,
    reason = "a test says where it fails by panicking"
)]

mod support;

use std::fs;

use serde_json::{Value, json};
use support::{Program, Ran};

const PCG: &str = r#"{"bit_generator": "PCG64", "state": {"state": 254813222761670966299253642180735182698, "inc": 332724090758049132448979897138935081983}, "has_uint32": 1, "uinteger": 1968220481}"#;
const PCG_NEUTRAL: &str = r#"{"algorithm":"pcg64-xsl-rr","caches":[{"bits":"7550a941","kind":"numpy/u32-half"}],"state":"6aa7524a710786468b15f21ed93db3bfffab258de2f2ca666e41a8c9365450fa"}"#;

/// Converts `text`; the result is one line.
fn convert(program: &Program, flags: &str, text: &str) -> String {
    let ran = try_convert(program, flags, text);
    assert_eq!(ran.exit, 0, "{flags}: {}", ran.err);
    assert_eq!(ran.out.lines().count(), 1, "{}", ran.out);
    ran.out.trim_end().to_owned()
}

fn try_convert(program: &Program, flags: &str, text: impl AsRef<[u8]>) -> Ran {
    fs::write(program.path("in"), text).unwrap();
    program.run(&format!("rng convert --input in {flags}"))
}

#[test]
fn next_prints_the_canary() {
    let program = Program::new();
    let state = "2a000000000000000400000000000000";
    let flags = format!("rng next --algorithm philox4x32-10/torch-cuda --state-hex {state}");
    assert_eq!(program.run(&flags).out, "fcdb2127\n53ba6cfd\n838f5a6e\n744e06fb\n");
    assert_eq!(
        program.json(&format!("{flags} --count 4"), 0),
        json!({
            "algorithm": "philox4x32-10/torch-cuda", "width": 32,
            "next_raw": ["fcdb2127", "53ba6cfd", "838f5a6e", "744e06fb"],
            "state": "2a000000000000000800000000000000",
        })
    );
    // No state lies within a block.
    assert_eq!(program.json(&format!("{flags} --count 5"), 0)["state"], Value::Null);
    assert_eq!(program.run(&format!("{flags} --count 0")).out, "");

    let wide = program.json(
        "rng next --count 2 --algorithm pcg64-dxsm --state-hex \
         c80a86689d7cbcac2a8f7998674fa4ceffab258de2f2ca666e41a8c9365450fa",
        0,
    );
    assert_eq!((&wide["width"], &wide["next_raw"][1]), (&json!(64), &json!("01bdf91d548d1872")));
    // What a key gives depends on how many are asked for; the key stays.
    let split = "rng next --algorithm threefry2x32-20/jax-split --state-hex 000000002a000000";
    let five = program.json(&format!("{split} --count 5"), 0);
    assert_eq!(five["next_raw"][0], "bad56946");
    assert_eq!(five["state"], "000000002a000000");
    assert_eq!(program.json(&format!("{split} --count 4"), 0)["next_raw"][0], "92fb20ea");
    // There may be none to print: that is said, and is no error.
    let none =
        program.run("rng next --algorithm jax-rbg --state-hex 00000000000000000000000000000000");
    assert_eq!((none.exit, none.out.as_str()), (0, ""));
    assert!(none.err.contains("jax-rbg has no outputs that are defined"), "{}", none.err);
}

#[test]
fn next_refuses_what_is_no_state() {
    let program = Program::new();
    let ran = program.json("rng next --algorithm pcg32-xsh-rr --state-hex 00", 1);
    assert_eq!(ran["error"]["code"], "bad-rng-state");
    assert_eq!(ran["error"]["rule"], "rng.state");
    for usage in [
        "rng next --algorithm pcg32-xsh-rr --state-hex 0",
        "rng next --algorithm pcg32-xsh-rr --state-hex +1",
        "rng next --algorithm rand48 --state-hex 00",
        "rng next --algorithm pcg32-xsh-rr --state-hex 00 --count -1",
        "rng next --algorithm pcg32-xsh-rr",
        "rng",
    ] {
        assert_eq!(program.run(usage).exit, 2, "{usage}");
    }
}

#[test]
fn integers_of_128_bits_survive() {
    let program = Program::new();
    assert_eq!(convert(&program, "--from numpy --to neutral", PCG), PCG_NEUTRAL);
    assert_eq!(convert(&program, "--from neutral --to numpy", PCG_NEUTRAL), PCG);
    // Tools whose JSON would lose them write strings.
    let spelled = PCG.replace(
        "254813222761670966299253642180735182698",
        "\"254813222761670966299253642180735182698\"",
    );
    assert_eq!(convert(&program, "--from numpy --to neutral", &spelled), PCG_NEUTRAL);
    let padded = spelled.replace("\"2548", "\"02548");
    assert_eq!(try_convert(&program, "--from numpy --to neutral", &padded).exit, 2);
    let object = convert(&program, "--from neutral --to numpy --json", PCG_NEUTRAL);
    assert_eq!(object, format!("{{\"form\":\"numpy\",\"value\":{PCG}}}"));
    let neutral = convert(&program, "--from numpy --to neutral --json", PCG);
    let neutral: Value = serde_json::from_str(&neutral).unwrap();
    assert_eq!(neutral["value"]["caches"][0]["bits"], "7550a941");
    // A crate of Rust keeps no half output: it is not dropped in silence.
    let lost = try_convert(&program, "--from numpy --to rust", PCG);
    assert_eq!(lost.exit, 2, "{}", lost.err);
    assert!(lost.err.contains("numpy/u32-half"), "{}", lost.err);
    let empty = PCG.replace("\"has_uint32\": 1", "\"has_uint32\": 0");
    assert_eq!(
        convert(&program, "--from numpy --to rust", &empty),
        r#"{"state": 254813222761670966299253642180735182698, "increment": 332724090758049132448979897138935081983}"#
    );
}

/// A Mersenne Twister goes from one framework to the next and is none the worse.
#[test]
fn a_twister_goes_round() {
    let program = Program::new();
    let words = vec!["4294967295"; 624].join(", ");
    let python = format!("[3, [{words}, 9], -1.5e-07]");
    let neutral = convert(&program, "--from python --to neutral", &python);
    assert!(neutral.contains(r#""kind":"python/gauss-next-f64""#), "{neutral}");
    assert_eq!(convert(&program, "--from neutral --to python", &neutral), python);
    // No other framework has that cache.
    assert_eq!(try_convert(&program, "--from neutral --to numpy", &neutral).exit, 2);

    let python = format!("[3, [{words}, 9], null]");
    let legacy = convert(&program, "--from python --to numpy-legacy", &python);
    assert_eq!(legacy, format!("[\"MT19937\", [{words}], 9, 0, 0.0]"));
    let numpy = convert(&program, "--from numpy-legacy --to numpy", &legacy);
    let to_torch = "--from numpy --to torch-cpu --initial-seed 18446744073709551615";
    let torch = convert(&program, to_torch, &numpy);
    assert_eq!((torch.len(), &torch[..16]), (2 * 5056, "ffffffffffffffff"));
    let neutral = convert(&program, "--from torch-cpu --to neutral", &torch);
    assert!(neutral.contains(r#""initial_seed":{"int":"18446744073709551615"}"#), "{neutral}");
    assert_eq!(convert(&program, "--from neutral --to torch-cpu", &neutral), torch);
    assert_eq!(convert(&program, "--from neutral --to python", &neutral), python);
    for (seed, spelled) in [
        ("9007199254740991", "9007199254740991"),
        ("9007199254740992", r#"{"int":"9007199254740992"}"#),
    ] {
        let flags = format!("--from python --to neutral --initial-seed {seed}");
        let neutral = convert(&program, &flags, &python);
        assert!(neutral.contains(&format!("\"initial_seed\":{spelled},")), "{neutral}");
    }
    // Without a seed there is none to write.
    assert_eq!(try_convert(&program, "--from python --to torch-cpu", &python).exit, 2);
}

#[test]
fn bytes_are_read_raw_or_as_hex() {
    let program = Program::new();
    let hex = "2a000000000000000400000000000000";
    let raw: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    let flags = "--from torch-cuda --to torch-cuda";
    assert_eq!(convert(&program, flags, hex), hex);
    assert_eq!(convert(&program, flags, &format!("{}\n", hex.to_uppercase())), hex);
    assert_eq!(try_convert(&program, flags, &raw).out.trim_end(), hex);
    assert_eq!(try_convert(&program, &format!("{flags} --output out"), &raw).exit, 0);
    assert_eq!(fs::read(program.path("out")).unwrap(), raw);
    // Nothing is replaced.
    assert_eq!(try_convert(&program, &format!("{flags} --output out"), &raw).exit, 1);

    let mps = format!("{}{hex}", "01000000".repeat(7));
    let neutral = convert(&program, "--from torch-mps --to neutral", &mps);
    assert!(neutral.contains(&format!("\"{hex}0100")), "{neutral}");
    assert_eq!(convert(&program, "--from neutral --to torch-mps", &neutral), mps);
    let old = try_convert(&program, "--from torch-mps --to neutral", &mps[..72]);
    assert_eq!(old.exit, 2);
    assert!(old.err.contains("lacks the offset"), "{}", old.err);
}

#[test]
fn keys_say_what_they_are_of() {
    let program = Program::new();
    let key = "[0, 42]";
    let jax = "--from jax --impl fry --partitionable";
    let neutral = convert(&program, &format!("{jax} true --to neutral"), key);
    assert_eq!(
        neutral,
        r#"{"algorithm":"threefry2x32-20/jax-partitionable","caches":[],"state":"000000002a000000"}"#
    );
    assert_eq!(convert(&program, "--from neutral --to jax", &neutral), key);
    assert_eq!(
        convert(&program, "--from neutral --to jax --json", &neutral),
        r#"{"form":"jax","impl":"threefry2x32","partitionable":true,"value":[0, 42]}"#
    );
    // MLX numbers outputs in the other order: that is another stream.
    assert_eq!(try_convert(&program, "--from neutral --to mlx", &neutral).exit, 2);
    assert_eq!(convert(&program, &format!("{jax} false --to mlx"), key), key);
    let split = convert(&program, "--from mlx --to neutral", "[[0, 42]]");
    assert_eq!(split, convert(&program, "--from mlx --to neutral", key));
    assert!(split.contains("jax-split"), "{split}");
    let rbg = convert(&program, "--from jax --impl urbg --to neutral", "[0, 42, 0, 42]");
    assert!(rbg.contains("jax-unsafe-rbg"), "{rbg}");
    let torch = "[7527850912803292081, 3344896577480189866]";
    let stateless = convert(&program, "--from torch-key --to neutral", torch);
    assert!(stateless.contains("b183bd5b854c7868aa672017b7756b2e"), "{stateless}");
    assert_eq!(convert(&program, "--from neutral --to torch-key", &stateless), torch);
    // The flag decides about the numbers, and is never guessed.
    for usage in ["--from jax --to neutral", "--from jax --impl fry --to neutral"] {
        assert_eq!(try_convert(&program, usage, key).exit, 2, "{usage}");
    }
}

#[test]
fn forms_of_rust_need_the_type() {
    let program = Program::new();
    let chacha = format!(
        r#"{{"seed": [{}], "stream": 7, "word_pos": 295147905179352825855}}"#,
        vec!["255"; 32].join(", ")
    );
    let flags = "--from rust --algorithm chacha12/rand --to neutral";
    let neutral = convert(&program, flags, &chacha);
    assert!(neutral.contains("ffffffffffffffff0f00"), "{neutral}");
    assert_eq!(convert(&program, "--from neutral --to rust", &neutral), chacha);
    let object = convert(&program, "--from neutral --to rust --json", &neutral);
    assert!(object.starts_with(r#"{"form":"rust","algorithm":"chacha12/rand","value":"#));
    let xoshiro = r#"{"s": [1, 2, 3, 18446744073709551615]}"#;
    let flags = "--from rust --algorithm xoshiro256++";
    assert_eq!(convert(&program, &format!("{flags} --to rust"), xoshiro), xoshiro);
    assert_eq!(try_convert(&program, "--from rust --to neutral", xoshiro).exit, 2);
}

#[test]
fn what_is_no_form_is_refused() {
    let program = Program::new();
    let answer = |flags: &str, text: &str| {
        let ran = try_convert(&program, &format!("{flags} --json"), text);
        let object: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(object["error"]["file"], "in");
        let code = object["error"]["code"].as_str().unwrap().to_owned();
        (ran.exit, code, object["error"]["message"].as_str().unwrap().to_owned())
    };
    let refused = |flags: &str, text: &str| {
        let (exit, code, message) = answer(flags, text);
        assert_eq!((exit, code.as_str()), (2, "bad-argument"), "{flags} {text}: {message}");
        message
    };
    // Of the form, and no state of the engine.
    let impossible = |flags: &str, text: &str| {
        let (exit, code, message) = answer(flags, text);
        assert_eq!((exit, code.as_str()), (1, "bad-rng-state"), "{flags} {text}: {message}");
    };
    let neutral = |caches: &str, more: &str| {
        format!(
            r#"{{"algorithm":"sfc64","caches":[{caches}]{more},"state":"{}"}}"#,
            "00".repeat(32)
        )
    };
    convert(&program, "--from neutral --to neutral", &neutral("", ""));
    for bad in [
        neutral(r#"{"bits":"00","kind":"numpy/u32-half"}"#, ""),
        neutral(r#"{"bits":"0000000G","kind":"numpy/u32-half"}"#, ""),
        neutral(r#"{"bits":"0000000A","kind":"numpy/u32-half"}"#, ""),
        neutral(r#"{"bits":"00000000","kind":"numpy/u33-half"}"#, ""),
        neutral(
            r#"{"bits":"00000000","kind":"numpy/u32-half"},{"bits":"00000000","kind":"numpy/u32-half"}"#,
            "",
        ),
        neutral(r#"{"kind":"numpy/u32-half"}"#, ""),
        neutral("", r#","initial_seed":-1"#),
        neutral("", r#","seed":1"#),
        neutral("", "").replace("sfc64", "sfc65"),
        neutral("", "").replace("\"00", "\"0"),
        "{}".into(),
        "[]".into(),
        "{".into(),
        String::new(),
    ] {
        refused("--from neutral --to neutral", &bad);
    }
    refused("--from numpy --to neutral", &PCG.replace("\"uinteger\"", "\"integer\""));
    refused("--from mlx --to neutral", "[4294967296, 0]");
    refused("--from torch-key --to neutral", "[18446744073709551616, 0]");
    impossible("--from torch-cuda --to neutral", "2a000000000000000500000000000000");
    refused("--from torch-cpu --to neutral", &"00".repeat(5056));
    refused("--from python --to neutral", "[2, [], null]");
    refused("--from python --to neutral", &" ".repeat((1 << 20) + 1));

    // What print() gives, and a part of the whole.
    for (form, repr) in [
        ("python", "(3, (2147483648, 1812433253), None)"),
        ("numpy", "{'bit_generator': 'PCG64'}"),
        ("numpy-legacy", "('MT19937', array([1, 2], dtype=uint32), 624, 0, 0.0)"),
    ] {
        let message = refused(&format!("--from {form} --to neutral"), repr);
        assert!(message.contains("json.dumps(state, default=lambda a: a.tolist())"), "{message}");
    }
    let words = vec!["7"; 625].join(", ");
    let message = refused("--from python --to neutral", &format!("[{words}]"));
    assert!(message.contains("expected [3, [624 words, position], gauss_next]"), "{message}");
    assert!(message.contains("a list of 625 integers"), "{message}");

    // A flag that does nothing here was meant for something else.
    for flags in ["--impl fry", "--partitionable true", "--algorithm sfc64"] {
        let usage = format!("--from neutral --to neutral {flags}");
        assert_eq!(try_convert(&program, &usage, neutral("", "")).exit, 2, "{flags}");
    }
    let seeded = "--from neutral --to numpy --initial-seed 1";
    assert_eq!(try_convert(&program, seeded, neutral("", "")).exit, 2);
    assert_eq!(program.run("rng convert --from neutral --to python --input nothing").exit, 3);
}
